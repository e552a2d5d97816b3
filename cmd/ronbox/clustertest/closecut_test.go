package clustertest

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/httpapi/client"
)

// closeCuts is the number of images of each kind, unless -cuts is more.
const closeCuts = 4

// closing is a node alone that closes the past.
type closing struct {
	*node
	past  *past
	began int // lines of the trace before the closing, about
}

// isReady waits until the node is ready, and returns its socket.
func (c *closing) isReady(t testing.TB) *client.Client {
	t.Helper()
	socket := c.socket(t)
	until(t, "the node is ready", []*node{c.node}, func() bool { return ready(t.Context(), socket) })
	return socket
}

// closes closes all parts of the past, and waits until nothing of them is left in the database.
func (c *closing) closes(t testing.TB) {
	t.Helper()
	socket := c.isReady(t)
	until(t, "the past is closed", []*node{c.node}, func() bool {
		state, n, err := c.past.closed(t, socket)
		if err == nil && state == "idle" && n < len(c.past.parts) {
			c.past.asks(t, c.node, n, true)
		}
		return err == nil && state == "idle" && n == len(c.past.parts)
	})
}

// lives closes the past under strace, and returns what the trace shows.
func (c *closing) lives(t testing.TB) *disk {
	t.Helper()
	parent := filepath.Dir(c.dir)
	base, trace := filepath.Join(parent, "base"), filepath.Join(parent, "trace")
	must(t, copyTree(c.dir, base))
	c.with = []string{
		hosttest.Tool(t, "strace", "strace"), "-D", "-f", "-qq", "--seccomp-bpf", "-y", "-xx", "-s", "16777216",
		"-e", "trace=" + tracedCalls, "-e", "signal=none", "-o", trace, "--",
	}
	c.launch(t)
	c.with = nil
	c.isReady(t)
	text, err := os.ReadFile(trace)
	must(t, err)
	c.began = bytes.Count(text, []byte("\n"))
	c.closes(t)
	c.past.refused(t, c.socket(t), 0)
	c.kill()
	k, err := newDisk(c.dir, base)
	must(t, err)
	must(t, k.read(trace))
	return k
}

// A node that is killed, or loses its power, after any system call of a closing has each record since
// the first, pays nothing twice, and ends the closing with a file of the same content.
func TestCloseCut(t *testing.T) {
	t.Parallel()
	if hosttest.UnderRace() {
		t.Skip("what counts is another process")
	}
	d := rand.New(rand.NewPCG(hosttest.Seed(t, "CLUSTER_SEED"), 14))
	c := &closing{node: newNode(t, "a")}
	c.past = newPast(t, filepath.Dir(c.dir), 1)
	c.must(t, nil, "init", "-q")
	c.must(t, nil, "ledger", "import", c.past.file, "-q")
	k := c.lives(t)
	closed := 0
	for i, at := range c.cutPlaces(k.last, d) {
		keep := all
		if i%2 == 1 {
			keep = fair(d)
		}
		must(t, k.image(at, keep, c.dir))
		if c.past.whole(t, c.node, c.database(), filepath.Join(c.dir, "periods")) {
			closed++
		}
		c.launch(t)
		socket := c.isReady(t)
		c.past.refused(t, socket, d.IntN(pastPayments))
		c.closes(t)
		c.past.refused(t, socket, d.IntN(pastPayments))
		if code := c.stop(t); code != 0 {
			t.Fatalf("call %d: exit %d", at, code)
		}
		if !c.past.whole(t, c.node, c.database(), filepath.Join(c.dir, "periods")) {
			t.Fatalf("call %d: the period is not closed", at)
		}
		if left, _ := filepath.Glob(filepath.Join(c.dir, "periods", "*")); len(left) != 1 ||
			strings.HasSuffix(left[0], ".partial") {
			t.Errorf("call %d: in the folder are %v", at, left)
		}
		if t.Failed() {
			t.Fatalf("call %d of %d, power cut: %v", at, k.last, i%2 == 1)
		}
	}
	t.Logf("of calls %d to %d; the period was closed in %d images", c.began, k.last, closed)
}

// cutPlaces returns the calls of the closing behind which a node is killed, and loses its power: some
// of each. With -cuts they are all calls, or so many.
func (c *closing) cutPlaces(last int, d *rand.Rand) (at []int) {
	calls := last - c.began
	n := max(closeCuts, min(*cutsFlag, calls))
	for i := range n {
		from, to := c.began+i*calls/n, c.began+(i+1)*calls/n
		place := from + 1 + d.IntN(to-from)
		at = append(at, place, place)
	}
	return at
}
