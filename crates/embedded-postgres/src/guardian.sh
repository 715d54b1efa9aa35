# Runs a program until its owner, which holds the other end of standard input, ends.
# Usage: guardian FOLDER GRACE PROGRAM [ARGUMENT...]
# FOLDER (may be empty) contains the server's socket; it is removed after a stop. GRACE: seconds.
#
# The owner starts this as the leader of a process group. Signals are sent to the group ("kill 0"), never to a process
# id, which may have been reused. PostgreSQL's own children leave the group.
folder=$1 grace=$2
shift 2
# Background jobs get /dev/null as standard input, so the pipe moves to a descriptor of its own.
exec 3<&0 </dev/null
trap '' HUP INT QUIT TERM
(
    read -r _ <&3               # Nothing is ever written: returns when the owner ends.
    trap 'exit 3' USR1          # Tells the shell below that it did.
    second=0
    while [ "$second" -lt "$grace" ]; do
        kill -INT 0             # PostgreSQL: fast shutdown. Repeated, in case it is just starting.
        sleep 1
        second=$((second + 1))
    done
    kill -QUIT 0                # PostgreSQL: immediate shutdown, recovered at the next start
    sleep "$grace"
    kill -KILL 0
) 2>/dev/null &
watcher=$!
# Handled, not ignored: the program would inherit that. What was ignored when this started remains so; PostgreSQL handles it.
ending=
trap 'ending=yes' INT
trap : HUP QUIT TERM USR1
"$@" 3<&-
status=$?
kill -USR1 0                    # Ends the watcher above.
wait "$watcher"
[ $? != 3 ] || ending=yes
if [ -n "$ending" ] && [ -n "$folder" ]; then
    rm -f "$folder/.s.PGSQL.5432" "$folder/.s.PGSQL.5432.lock"
    rmdir "$folder"
fi
exit "$status"
