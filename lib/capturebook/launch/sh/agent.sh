
# The agent: runs requests that arrive on standard input, each in a subshell of its own. A request is a line
# "SCRIPT_BYTES DATA_BYTES TOKEN", the script, and data that becomes the script's standard input; the answer ends with
# a line "TOKEN STATUS". No request can eat the next one, hold the connection, or end the agent.

cb_hello() {
    printf 'system %s\n' "$(uname -sm)"
    printf 'boot %s\n' "$(cat /proc/sys/kernel/random/boot_id)"
    printf 'clock %s\n' "$(date +%s)"
    printf 'home %s\n' "$HOME"
    for cb_tool in setsid sha256sum head tail mkfifo stat env tr readlink; do
        command -v "$cb_tool" >/dev/null 2>&1 || printf 'missing %s\n' "$cb_tool"
    done
    command -v bash >/dev/null 2>&1 || printf 'without bash\n'
    env --default-signal true 2>/dev/null || printf 'without default-signal\n'
}

cb_folder() {
    umask 077
    mkdir -p -- "$cb_base" && mkdir -- "$cb_dir" && mkdir -- "$cb_dir/work" && printf '%s\n' "$cb_nonce" >"$cb_dir/nonce" && cat "$cb_dir/nonce"
}

# The file's bytes are standard input.
cb_deliver() {
    umask 077
    mkdir -p -- "$cb_parent" && cat >"$cb_file.part" && mv -f -- "$cb_file.part" "$cb_file" && chmod "$cb_mode" "$cb_file" &&
        sha256sum <"$cb_file"
}

# Runs the arguments in the environment that the start text on standard input makes.
cb_check() {
    cb_start=$(cat)
    eval "$cb_start"
    program_environment
    cd -- "$cb_folder" && "$@" </dev/null
}

# The start text is standard input. Prints, after a line "environment", the
# environment that the program gets, NUL after each.
cb_environment() {
    cb_start=$(cat)
    cb_env=$(command -v env)
    eval "$cb_start"
    [ "$cb_whole" = "$cb_nonce" ] || { echo 'the start text did not arrive whole'; return 1; }
    program_environment
    program_setup || return 1
    command -v -- "$cb_first" >/dev/null || { printf 'command not found: %s\n' "$cb_first"; return 127; }
    printf 'environment\n'
    "$cb_env" -0
}

# What a file is now, so that a stale one is told from a new one without any clock.
cb_print_file() {
    cb_sum=-
    [ ! -f "$cb_file" ] || cb_sum=$(tail -c 1048576 -- "$cb_file" | sha256sum)
    stat -L -c "%s ${cb_sum%% *} %i %y %F" -- "$cb_file"
} 2>&1

cb_ports() { cat /proc/net/tcp && { [ ! -r /proc/net/tcp6 ] || cat /proc/net/tcp6; }; }

cb_table() { cat /proc/[0-9]*/stat 2>/dev/null; }

# Root's units are the system's, a user's are the user's own manager's.
cb_of_manager() { [ "$(id -u)" = 0 ] && echo --system || echo --user; }

# A unit's state; without a unit, whether a manager answers.
cb_unit_state() {
    if [ -n "$cb_unit" ]; then
        systemctl $(cb_of_manager) show -p ActiveState -p SubState -- "$cb_unit"
    else
        command -v systemd-run >/dev/null || { echo 'systemd-run: not found'; return 1; }
        systemctl $(cb_of_manager) show -p Version
    fi
} 2>&1

# The start text is standard input; a background command would get /dev/null instead, hence descriptor 3.
cb_start() {
    [ ! -e "$cb_dir/keeper" ] || { echo 'this folder was started before'; return 1; }
    exec 3<&0
    cd /
    # A scope, not a service: systemd-run becomes the keeper, with our standard input.
    cb_scope=''
    [ -z "$cb_unit" ] || cb_scope="systemd-run $(cb_of_manager) --scope --collect --quiet --unit=$cb_unit --"
    setsid $cb_scope $cb_reset /bin/sh "$cb_dir/keeper.sh" "$cb_dir" "$cb_nonce" "$cb_limit" "$cb_unit" <&3 3<&- >/dev/null \
        2>"$cb_dir/keeper.err" &
    cb_keeper=$!
    exec 3<&-
    cb_try=0
    while [ $cb_try -lt 60 ] && [ ! -s "$cb_dir/program" ]; do
        cb_read_stat "$cb_keeper" || break
        case $cb_stat in Z*) break ;; esac
        cb_try=$((cb_try + 1))
        sleep 0.05
    done
    [ -s "$cb_dir/program" ] && return
    cat "$cb_dir/keeper.err"
    # A slow keeper must not start it after it was said that nothing was started.
    cb_read_stat "$cb_keeper" && kill -KILL "$cb_keeper" && cb_sweep "$cb_keeper" "$(cb_field 20 $cb_stat)" "$$"
    return 1
} 2>&1

cb_print() { printf '%s %s\n' "$1" "$(cat "$cb_dir/$1" 2>/dev/null)"; }

# State of a launch, then a line "log SIZE" and up to $cb_most bytes of the log from byte $cb_offset.
cb_poll() {
    [ -r "$cb_dir/nonce" ] || { echo 'the folder is gone'; return 1; }
    printf 'boot %s\n' "$(cat /proc/sys/kernel/random/boot_id)"
    read -r cb_up cb_rest </proc/uptime && printf 'uptime %s\n' "$cb_up"
    for cb_name in nonce keeper program started; do cb_print $cb_name; done
    for cb_name in keeper program; do
        cb_pid='' cb_tick=''
        { read -r cb_pid cb_tick <"$cb_dir/$cb_name"; } 2>/dev/null
        [ -n "$cb_pid" ] && cb_alive "$cb_pid" "$cb_tick" && printf 'alive %s\n' $cb_name
    done
    [ ! -e "$cb_dir/waits" ] || echo 'waits yes'
    # After the look at the processes: a keeper that is gone has written it by now, or never will.
    [ ! -e "$cb_dir/exit" ] || while read -r cb_line; do [ -z "$cb_line" ] || printf 'exit %s\n' "$cb_line"; done <"$cb_dir/exit"
    [ -e "$cb_dir/log" ] || { echo 'log none'; return 0; }
    printf 'log %s\n' "$(stat -c %s "$cb_dir/log")"
    tail -c "+$((cb_offset + 1))" "$cb_dir/log" | head -c "$cb_most"
}

# Signal process $cb_pid only if it is the one that was recorded: same boot, same start time.
cb_signal() {
    [ "$(cat /proc/sys/kernel/random/boot_id)" = "$cb_boot" ] || { echo 'the host was restarted since'; return 1; }
    cb_alive "$cb_pid" "$cb_tick" || { echo 'that process has ended; its number may be another process by now'; return 1; }
    kill "-$cb_signal" "$cb_pid"
} 2>&1

# For a keeper that was killed: end what it left.
cb_sweep_for() {
    cb_sweep "$cb_keeper" "$cb_born" "$$" && printf '%s\n' "${cb_left# }"
}

# Exactly that many bytes of standard input. Not every head -c leaves the rest (busybox and uutils read ahead).
if [ "$(printf ab | { head -c 1 >/dev/null; cat; })" = b ]; then
    cb_take() { head -c "$1"; }
else
    cb_take() { dd ibs=1 obs=65536 count="$1" 2>/dev/null; }
fi

while read -r cb_n cb_d cb_t; do
    cb_s=$(cb_take "$cb_n")
    cb_take "$cb_d" | {
        (eval "$cb_s")
        cb_r=$?
        cat >/dev/null
        printf '\n%s %s\n' "$cb_t" "$cb_r"
    }
done
