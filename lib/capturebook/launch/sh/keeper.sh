
# The keeper: starts the program, waits for it, and writes its exit status last. Arguments: folder, nonce, log limit in
# blocks of 512 bytes, systemd scope or nothing. Its standard input is the start text, which defines program_environment, program_setup (cd),
# program_exec and redact_line and ends with cb_whole=NONCE: environment, arguments and secrets are neither on disk nor
# on a command line of ours.

cb_dir=$1 cb_nonce=$2 cb_limit=$3 cb_unit=$4
cb_mask=$(umask)
umask 077
exec 2>"$cb_dir/keeper.err"
trap '' HUP

# A reader sees the whole file or none.
put() { printf '%s\n' "$2" >"$cb_dir/.$1" && mv -f "$cb_dir/.$1" "$cb_dir/$1"; }
uptime() { read -r cb_up cb_rest </proc/uptime && printf '%s' "$cb_up"; }

cb_read_stat self || exit 1
cb_born=$(cb_field 20 $cb_stat)
put keeper "$$ $cb_born" || exit 1
cb_whole=
cb_start=$(cat)
exec </dev/null
eval "$cb_start"
# A launcher that was killed while it wrote left half a text: nothing is started.
[ "$cb_whole" = "$cb_nonce" ] || exit 1
# The end must be recorded even when the disk is full by then, so its block is taken now.
printf '%4096s' '' >"$cb_dir/.exit" || exit 1
mkfifo "$cb_dir/pipe" && printf 'capturebook launch %s\n' "$cb_nonce" >"$cb_dir/log" || exit 1

# Copies the program's output to the log, up to the limit, and then only its last 64 KiB.
write_log() {
    trap '' HUP INT TERM XFSZ
    ( ulimit -f "$cb_limit"; copy ) || { printf '\n[capturebook: log limit reached; after it only the end is kept]\n'; rest; }
}
if [ -n "$cb_redacts" ]; then
    # Without a secret line by line: slower, and the output after the limit is dropped.
    copy() {
        while IFS= read -r cb_line || [ -n "$cb_line" ]; do
            redact_line
            printf '%s\n' "$cb_line" || return 1
        done
    }
    rest() { cat >/dev/null; }
else
    copy() { exec cat; }
    rest() { tail -c 65536; }
fi
write_log <"$cb_dir/pipe" >>"$cb_dir/log" &
cb_writer=$!
cb_read_stat "$cb_writer" && cb_writer_born=$(cb_field 20 $cb_stat)

put started "$(uptime)"
# There as long as we wait for the program. To take it away needs no room on a full disk.
: >"$cb_dir/waits" || exit 1
(
    read -r cb_pid cb_rest </proc/self/stat
    cb_read_stat "$cb_pid"
    put program "$cb_pid $(cb_field 20 $cb_stat)"
    umask "$cb_mask"
    program_environment
    # Without its folder the program must not run in another.
    # If it cannot be executed, the shell says so in the log, under this file's name.
    program_setup && program_exec
) >"$cb_dir/pipe" 2>&1
cb_rc=$?
rm -f "$cb_dir/waits"
cb_ended=$(uptime)
cb_sweep "$$" "$cb_born" "$cb_writer"
cb_swept=$?
# What it has still to write takes a moment; but what we may not look into could hold its output for ever.
cb_try=0 cb_size=
while cb_alive "$cb_writer" "$cb_writer_born"; do
    cb_was=$cb_size cb_size=$(stat -c %s "$cb_dir/log")
    [ "$cb_was" = "$cb_size" ] || cb_still=0
    cb_try=$((cb_try + 1)) cb_still=$((cb_still + 1))
    if [ $cb_still -gt 10 ] || [ $cb_try -gt 50 ]; then
        kill -KILL "$cb_writer"
        # Its own children are in our session.
        cb_find_members "$$" "$cb_born" 0 && kill -KILL $cb_members
        printf '\n[capturebook: a process that could not be ended still holds the output; the log ends here]\n' >>"$cb_dir/log"
        break
    fi
    sleep 0.1
done
printf 'rc=%s\nended=%s\nswept=%s\nleft=%s\nwhole=%s\n' "$cb_rc" "$cb_ended" "$cb_swept" "${cb_left# }" "$cb_nonce" 1<>"$cb_dir/.exit"
mv -f "$cb_dir/.exit" "$cb_dir/exit"
rm -f "$cb_dir/pipe"
