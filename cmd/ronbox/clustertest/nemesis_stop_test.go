package clustertest

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ronbox/appliance/host/hosttest"
	clusterapi "ronbox/httpapi/wire/cluster"
)

// The exit codes of a node that was told to stop.
const (
	exitClean   = 0
	exitAborted = 10 // a task had to be aborted
)

// sameSignal is a little more than the time within which a node takes two signals for one.
const sameSignal = 300 * time.Millisecond

// stopTime bounds a random pause before a signal.
const stopTime = 1500 * time.Millisecond

// stopped waits for the end of a node that was told to stop, and expects an exit code of that. The
// signal itself ends a process whose life has just begun, and has logged nothing.
func (c *cluster) stopped(t testing.TB, i int) {
	t.Helper()
	n := c.nodes[i]
	began := time.Now()
	code := n.ended(t)
	log := n.proc.log.String()
	silent := code == -1 && !strings.Contains(log[max(0, strings.LastIndex(log, `"deposed"`)):], `"starting"`)
	if code != exitClean && code != exitAborted && !silent {
		t.Fatalf("%s was told to stop, and ended with %v:\n%s", n.name, n.proc.cmd.ProcessState, n.proc.log)
	}
	t.Logf("%s ended with %d, %.1fs after it was waited for", n.name, code, time.Since(began).Seconds())
}

// again sends SIGTERM again, half of the times.
func again(n *node, d *rand.Rand) {
	if d.IntN(2) == 0 {
		hold(sameSignal)
		n.signal(syscall.SIGTERM)
	}
}

// stopLeader tells the leader to stop, once or twice, and starts it when it has stopped.
func stopLeader(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	i := c.leader(t)
	c.nodes[i].signal(syscall.SIGTERM)
	again(c.nodes[i], d)
	c.stopped(t, i)
	c.start(t, i)
}

// stopAll tells all nodes to stop, and starts them in another order.
func stopAll(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	for _, i := range d.Perm(len(c.nodes)) {
		c.nodes[i].signal(syscall.SIGTERM)
		hold(time.Duration(d.Int64N(int64(200 * time.Millisecond))))
	}
	again(c.nodes[d.IntN(len(c.nodes))], d)
	for _, i := range d.Perm(len(c.nodes)) {
		c.stopped(t, i)
		c.start(t, i)
	}
}

// stopBoot kills any node, and tells it to stop while it boots or stands by: three times with a
// leader, and once with the others killed, so that it has none. That time it may be a node that
// begins anew and waits for the file.
func stopBoot(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	i := d.IntN(len(c.nodes))
	n := c.nodes[i]
	n.kill()
	boot := func() {
		c.start(t, i)
		hold(time.Duration(d.Int64N(int64(stopTime))))
		n.signal(syscall.SIGTERM)
		again(n, d)
		c.stopped(t, i)
	}
	for range 3 {
		boot()
	}
	if d.IntN(2) == 0 {
		c.leader(t)
		n.must(t, nil, "cluster", "rejoin", "--wipe", "--json")
	}
	for j, other := range c.nodes {
		if j != i {
			other.kill()
		}
	}
	boot()
	for j := range c.nodes {
		c.start(t, j)
	}
}

// stopDeposed pauses the leader until another one leads, and tells it to stop while it begins its
// next life.
func stopDeposed(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	i := c.leader(t)
	n := c.nodes[i]
	life := n.lives()
	n.signal(syscall.SIGSTOP)
	others := slices.Delete(slices.Clone(c.nodes), i, i+1)
	until(t, "another node leads", others, func() bool {
		return slices.ContainsFunc(others, func(n *node) bool { return c.leads(t, n) })
	})
	n.signal(syscall.SIGCONT)
	until(t, "it is deposed", []*node{n}, func() bool { return n.lives() != life })
	hold(time.Duration(d.Int64N(int64(stopTime / 2))))
	n.signal(syscall.SIGTERM)
	again(n, d)
	c.stopped(t, i)
	c.start(t, i)
}

// elections counts the elections that a node has won and that are in the kept log.
func (n *node) elections() int { return strings.Count(n.proc.log.String(), `"event":"leads"`) }

// stopElected kills the leader, and tells the next one to stop while it takes over.
func stopElected(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	i := c.leader(t)
	var before []int
	for _, n := range c.nodes {
		before = append(before, n.elections())
	}
	c.nodes[i].kill()
	j := 0
	until(t, "another node is elected", nil, func() bool {
		j = slices.IndexFunc(c.nodes, func(n *node) bool { return n.elections() != before[slices.Index(c.nodes, n)] })
		return j >= 0 && j != i
	})
	c.nodes[j].signal(syscall.SIGTERM)
	again(c.nodes[j], d)
	c.stopped(t, j)
	c.start(t, j)
	c.start(t, i)
}

// stopWithoutQuorum pauses the followers while payments run, and tells the leader to stop.
func stopWithoutQuorum(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	i := c.leader(t)
	for j, n := range c.nodes {
		if j != i {
			n.signal(syscall.SIGSTOP)
		}
	}
	hold(time.Duration(d.Int64N(int64(2 * *heartbeatFlag))))
	c.nodes[i].signal(syscall.SIGTERM)
	again(c.nodes[i], d)
	c.stopped(t, i)
	for j, n := range c.nodes {
		if j != i {
			n.signal(syscall.SIGCONT)
		}
	}
	c.start(t, i)
}

// stopStalled lets all syncs of the leader wait while payments run, and tells it to stop before or
// after it has noticed that. The process cannot end before the thread that syncs.
func stopStalled(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	i := c.leader(t)
	n := c.nodes[i]
	s := n.trace(t, "fsync,fdatasync", "delay_enter=10s", append(n.logFiles(t), n.database())...)
	hold(time.Second + time.Duration(d.Int64N(int64(6*time.Second))))
	n.signal(syscall.SIGTERM)
	again(n, d)
	c.stopped(t, i)
	s.stop()
	c.start(t, i)
}

// newOnly returns a node that does not run yet, alone. Under -short it skips the test.
func newOnly(t *testing.T) (*cluster, *node) {
	t.Helper()
	if hosttest.UnderRace() {
		t.Skip("what counts is another process")
	}
	c := newNodes(t, 1)
	n := c.nodes[0]
	n.env = append(n.env, "RONBOX_CLUSTER__HEARTBEAT=500ms")
	return c, n
}

// A second SIGTERM ends a leader that still serves before it drains, with the exit code of an abort.
// What it has acknowledged is there at its next start.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	c, n := newOnly(t)
	n.must(t, nil, "cluster", "init", "--json")
	if code := n.stop(t); code != exitClean {
		t.Fatalf("exit %d", code)
	}
	usual := n.env
	n.env = append(slices.Clone(usual), "RONBOX_NODE__PREDRAIN=5m")
	c.start(t, 0)
	c.well(t)
	n.signal(syscall.SIGTERM)
	until(t, "it drains", c.nodes, func() bool { return strings.Contains(n.proc.log.String(), "draining") })
	paid, _, err := c.svc.transfer(t.Context(), 0, "late", bankIn{from: 0, to: 1, amount: 1})
	must(t, err)
	hold(sameSignal)
	n.signal(syscall.SIGTERM)
	if code := n.ended(t); code != exitAborted {
		t.Errorf("exit %d, want %d\n%s", code, exitAborted, n.proc.log)
	}
	n.env = usual
	c.start(t, 0)
	c.well(t)
	same, _, err := c.svc.transfer(t.Context(), 0, "late", bankIn{from: 0, to: 1, amount: 1})
	must(t, err)
	if !same.replayed || string(same.receipt) != string(paid.receipt) {
		t.Errorf("the receipt is\n%s\nand was\n%s", same.receipt, paid.receipt)
	}
	if v := n.snapshot(t); !v.OK {
		t.Errorf("the snapshot: %+v", v)
	}
}

// A signal that comes between two lives of a process ends the second one in order.
func TestSignalBetweenLives(t *testing.T) {
	t.Parallel()
	c, n := newOnly(t)
	file := filepath.Join(n.dir, "ronbox.toml")
	text, err := os.ReadFile(file)
	must(t, err)
	must(t, os.Remove(file))
	must(t, syscall.Mkfifo(file, 0o600)) // the next life waits for its configuration
	_, err = c.admin[0].InitCluster(t.Context(), clusterapi.InitRequest{})
	must(t, err)
	var pipe *os.File
	until(t, "the next life reads its configuration", c.nodes, func() bool {
		pipe, err = os.OpenFile(file, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil
	})
	n.signal(syscall.SIGTERM)
	must(t, os.Remove(file))
	must(t, os.WriteFile(file, text, 0o600))
	_, err = pipe.Write(text)
	must(t, errors.Join(err, pipe.Close()))
	if code := n.ended(t); code != exitClean {
		t.Errorf("it ended with %v, want exit %d\n%s", n.proc.cmd.ProcessState, exitClean, n.proc.log)
	}
	c.start(t, 0)
	c.well(t)
}
