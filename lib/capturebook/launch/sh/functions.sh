# Shared by the agent and the keeper: POSIX sh, coreutils, /proc. Names that start with cb_ are ours.

# /proc/PID/stat of $1 after the command name, into cb_stat: state ppid pgrp session ... (start time is the 20th).
# Read with builtins alone: a fork for each process would take seconds on a busy host.
cb_read_stat() {
    cb_stat=
    while read -r cb_line || [ -n "$cb_line" ]; do cb_stat="$cb_stat $cb_line"; done 2>/dev/null <"/proc/$1/stat" || return 1
    [ -n "$cb_stat" ] || return 1
    cb_stat=${cb_stat##*) }
}

cb_field() { shift "$1"; printf '%s' "$1"; }

# Whether process $1 that started at tick $2 is still there and no zombie.
cb_alive() {
    cb_read_stat "$1" || return 1
    case $cb_stat in Z* | X*) return 1 ;; esac
    [ "$(cb_field 20 $cb_stat)" = "$2" ]
}

# Whether the environment of process $1 holds this launch's nonce: a descendant in a session of its own does.
cb_has_nonce() {
    { cb_env=$(tr '\000' '\n' <"/proc/$1/environ"); } 2>/dev/null || return 1
    case $cb_env in *"CAPTUREBOOK_LAUNCH=$cb_nonce"*) return 0 ;; esac
    return 1
}

# Whether process $1 still holds the program's output, whatever its session and environment are.
cb_holds_output() {
    for cb_fd in "/proc/$1/fd"/*; do
        [ "$cb_fd" -ef "$cb_dir/pipe" ] && return
    done
    return 1
}

# Whether process $1 is in the launch's systemd scope, which it cannot leave by itself.
cb_in_unit() {
    [ -n "$cb_unit" ] || return 1
    while read -r cb_line; do
        case $cb_line in *"/$cb_unit" | *"/$cb_unit/"*) return 0 ;; esac
    done 2>/dev/null <"/proc/$1/cgroup"
    return 1
}

# Into cb_members: what is alive of the launch besides the keeper and its children, by session $1, by its output, by
# nonce or by systemd scope; without one a process that has given up the other three is not found. Only processes not older than tick $2 are looked at. $3 is the log writer: it ends by itself, after the others.
cb_find_members() {
    cb_members=
    for cb_proc in /proc/[0-9]*; do
        cb_pid=${cb_proc#/proc/}
        cb_read_stat "$cb_pid" || continue
        cb_is_member "$1" "$2" "$3" $cb_stat && cb_members="$cb_members $cb_pid"
    done
    [ -n "$cb_members" ]
}

cb_is_member() {
    case $4 in Z | X) return 1 ;; esac
    [ "$cb_pid" != "$1" ] && [ "$cb_pid" != "$$" ] && [ "$5" != "$1" ] && [ "$5" != "$$" ] || return 1
    [ "$cb_pid" != "$3" ] && [ "$5" != "$3" ] || return 1
    [ "${23}" -ge "$2" ] || return 1
    [ "$7" = "$1" ] || cb_in_unit "$cb_pid" || cb_holds_output "$cb_pid" || cb_has_nonce "$cb_pid"
}

# End what is left of the launch: 0.3 s to end by itself, SIGTERM, 1 s, SIGKILL. Arguments as cb_find_members; cb_left names who was there.
cb_sweep() {
    cb_left=
    cb_try=0
    while cb_find_members "$1" "$2" "$3"; do
        case $cb_try in
            3)
                for cb_pid in $cb_members; do cb_left="$cb_left $(tr "\n" " " 2>/dev/null <"/proc/$cb_pid/comm")"; done
                kill -TERM $cb_members 2>/dev/null
                ;;
            13 | 23 | 33) kill -KILL $cb_members 2>/dev/null ;;
            48) return 1 ;;
        esac
        cb_try=$((cb_try + 1))
        sleep 0.1
    done
}
