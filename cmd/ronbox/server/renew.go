package server

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ronbox/appliance/flow"
	"ronbox/appliance/systemd"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/engines"
	"ronbox/engines/cluster"
	"ronbox/httpapi"
)

const (
	// renewWithin bounds the end of a life that is not orderly.
	renewWithin = time.Second

	// renewCut bounds the wait for requests. Those that remain are cut, and are answered as unknown
	// if the committer has taken their commands.
	renewCut = 600 * time.Millisecond
)

// Renew ends this life of the node as a drain does, and begins the next one: the process stays the
// same, and the sockets stay bound. It returns immediately.
func (n *Node) Renew(by engines.Actor, corrID, reason string) {
	n.again.askBy(by, corrID, reason)
	n.drain.askBy(by, corrID, reason)
}

// renewing reports whether the drain is to be followed by another life.
func (n *Node) renewing() bool {
	select {
	case <-n.again.asked:
		return true
	default:
		return false
	}
}

// keepSockets stops accepting. Connections made from now on wait for the next life.
func (n *Node) keepSockets() {
	kept, err := n.server.Keep()
	if err != nil {
		n.log.Warn("sockets are bound anew", "reason", err.Error())
	}
	n.kept = append(n.kept, kept...)
	keep := n.spare
	if n.member != nil {
		keep = n.member.Keep
	}
	port, err := keep()
	if err != nil {
		n.log.Warn("the peer port is bound anew", "reason", err.Error())
		return
	}
	if port.Name != "" {
		n.kept = append(n.kept, port)
	}
}

// spare returns a duplicate of the peer port that the service manager has opened for a node alone.
// Only a next life as a member accepts from it, and cannot bind the address itself. Without such a
// port it returns no name.
func (n *Node) spare() (systemd.Socket, error) {
	l := n.opt.inherited[systemd.PeerName]
	if _, ours := l.(*systemd.Kept); ours || l == nil {
		return systemd.Socket{}, nil
	}
	c, ok := l.(syscall.Conn)
	if !ok {
		return systemd.Socket{}, errors.ErrUnsupported
	}
	return systemd.Duplicate(systemd.PeerName, "", c)
}

// renew ends the life of a member that is deposed or hangs. It answers the requests that wait, and
// does not wait for the committer or for a disk that hangs: raft would go on to lead meanwhile.
func (n *Node) renew(ctx context.Context) process.Event {
	why, _ := n.member.Reason()
	n.log.Warn("deposed", "reason", why, "next", "the node starts again")
	n.manager.reloading()
	n.again.ask("deposed")
	n.server.SetGate(httpapi.GateClosed)
	n.sup.CancelBackground()
	n.keepSockets()
	n.refuseReloads()
	n.store.CloseLanes()
	if n.cutCalls(ctx) == nil && !n.isBusy() && why != string(cluster.ReasonHung) {
		_ = n.closeFile(ctx)
	}
	n.flush(ctx)
	return process.Event{Kind: process.EvClosed}
}

// cutCalls ends the tasks of the engines and the running requests. It returns an error if requests
// still run.
func (n *Node) cutCalls(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewWithin)
	defer cancel()
	var left error
	done := make(chan struct{})
	_ = flow.Fan(ctx, 3, func(ctx context.Context, leg int) error { // no leg fails
		switch leg {
		case 0:
			defer close(done)
			left = n.server.Shutdown(ctx)
		case 1:
			late := time.NewTimer(renewCut)
			defer late.Stop()
			select {
			case <-done:
			case <-late.C:
				n.server.Cut()
			}
		case 2:
			n.abortEngines(ctx, renewCut)
		}
		return nil
	})
	return left
}

// isBusy reports whether a task or the committer still runs, so that the file must stay open.
func (n *Node) isBusy() bool {
	return n.liveTasks.Load() > 0 || n.sup.Drain("store", 0, time.Millisecond) > 0
}

// end returns the exit code of the node. If another life is to follow, it does not return.
func (n *Node) end(ctx context.Context) (exit int) {
	if !n.renewing() || ctx.Err() != nil || n.state.Exit > process.ExitAborted {
		return n.state.Exit
	}
	begin := systemd.Again
	if n.opt.again != nil {
		begin = n.opt.again
	} else {
		// a signal that comes from here on ends the process, one that came before has ended ctx
		signal.Reset(syscall.SIGTERM, os.Interrupt)
		signal.Ignore(syscall.SIGHUP)
		if ctx.Err() != nil {
			return n.state.Exit
		}
	}
	err := begin(n.kept, n.lives()...)
	if err == nil {
		return n.state.Exit // the hook of a test
	}
	n.log.Error("the node cannot start again", "reason", err.Error(), "next", "start it")
	n.flush(context.WithoutCancel(ctx))
	return process.ExitNotRenewed
}

// envDeposed holds the times of the last two lives that ended by a deposition, in nanoseconds since
// the machine started.
const envDeposed = "_RONBOX_DEPOSED"

// Two depositions within restless make the next life stand for no election for restFor.
const (
	restless = time.Minute
	restFor  = time.Minute
)

// envEnded counts the ends of the lives of this process by their reasons, as in "asked=2,lease=1".
const envEnded = "_RONBOX_ENDED"

// lives returns the variables that tell the next life of the ends of the earlier ones. One that was
// told to transfer the leadership does not count as short. One that was unfit as the leader counts
// as two.
func (n *Node) lives() []string {
	if !n.isDeposed() {
		return nil
	}
	why, _ := n.member.Reason()
	counts := countedEndings(os.Getenv(envEnded))
	counts[cluster.Reason(why)]++
	out := []string{envEnded + "=" + textOfEndings(counts)}
	deposed, now := os.Getenv(envDeposed), sinceMachineStart()
	switch cluster.Reason(why) {
	case cluster.ReasonAsked, cluster.ReasonDrain:
		return out
	case cluster.ReasonUnfit:
		deposed = noteDeposed(deposed, now)
	}
	return append(out, envDeposed+"="+noteDeposed(deposed, now))
}

// countedEndings parses a value of envEnded. What is no count is left out.
func countedEndings(text string) map[cluster.Reason]int {
	counts := map[cluster.Reason]int{}
	for part := range strings.SplitSeq(text, ",") {
		why, count, _ := strings.Cut(part, "=")
		if n, err := strconv.Atoi(count); err == nil && n > 0 {
			counts[cluster.Reason(why)] = n
		}
	}
	return counts
}

// textOfEndings returns the value of envEnded for counts.
func textOfEndings(counts map[cluster.Reason]int) string {
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, string(why)+"="+strconv.Itoa(counts[why]))
	}
	return strings.Join(parts, ",")
}

// noteDeposed adds a deposition to a value of envDeposed.
func noteDeposed(text string, now time.Duration) string {
	_, last, _ := strings.Cut(text, ",")
	return last + "," + strconv.FormatInt(int64(now), 10)
}

// restsFor returns how long this life must not stand for election, by the value of envDeposed.
func restsFor(text string, now time.Duration) time.Duration {
	before, last, _ := strings.Cut(text, ",")
	first, err := strconv.ParseInt(before, 10, 64)
	second, err2 := strconv.ParseInt(last, 10, 64)
	if errors.Join(err, err2) != nil || time.Duration(second-first) > restless {
		return 0
	}
	return min(max(time.Duration(second)+restFor-now, 0), restFor)
}

// sinceMachineStart returns the time on a clock that all lives share.
func sinceMachineStart() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return time.Duration(t.Nano())
}
