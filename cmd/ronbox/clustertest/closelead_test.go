package clustertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ronbox/appliance/host/hosttest"
)

// closeStates are the states of a closing in which its leader dies, in their order.
var closeStates = []string{"building", "exporting", "checking", "closing", "dropping"}

// newPastCluster returns a cluster of three whose first node had a past.
func newPastCluster(t testing.TB, parts int) (*cluster, *past) {
	t.Helper()
	c := emptyNodes(t, 3)
	first := c.nodes[0]
	p := newPast(t, c.scratch, parts)
	first.must(t, nil, "init", "-q")
	first.must(t, nil, "ledger", "import", p.file, "-q")
	c.secret = first.funds(t)
	c.opened(t)
	first.must(t, nil, "cluster", "init", "--json")
	c.join(t, 1)
	c.join(t, 2)
	return c, p
}

// killClosing kills the leader of a closing once the closing is in a state or behind it, and starts
// it after another node leads. It returns the state that was seen.
func killClosing(t testing.TB, c *cluster, p *past, state string) (seen string) {
	t.Helper()
	var i, closed int
	must(t, repeat(t.Context(), func(context.Context) (err error) {
		i = c.leader(t)
		_, closed, err = p.closed(t, c.admin[i].Client)
		return err
	}))
	socket := c.admin[i].Client
	want := slices.Index(closeStates, state)
	until(t, "the closing is "+state, c.nodes, func() bool {
		now, n, err := p.closed(t, socket)
		if err != nil {
			return c.leader(t) != i // or it has lost its office for a moment
		}
		if now == "idle" && n == closed {
			p.asks(t, c.nodes[i], n, false)
			return false
		}
		seen = now
		return n > closed || slices.Index(closeStates, now) >= want
	})
	c.nodes[i].kill()
	until(t, "another node leads", nil, func() bool { return c.leader(t) != i })
	c.start(t, i)
	until(t, "the period is closed", c.nodes, func() bool {
		place := c.leader(t)
		now, n, err := p.closed(t, c.admin[place].Client)
		if err == nil && now == "idle" && n == closed {
			p.asks(t, c.nodes[place], n, false) // it has begun on the node that is gone alone
		}
		return err == nil && n == closed+1
	})
	return seen
}

// The leader of a cluster dies in each step of a closing, beside payments. The next leader ends the
// closing with a file of the same content as a node alone, and nothing is paid twice.
func TestCloseLosesLeader(t *testing.T) {
	t.Parallel()
	if hosttest.UnderRace() {
		t.Skip("what counts is another process")
	}
	seed := hosttest.Seed(t, "CLUSTER_SEED")
	d := rand.New(rand.NewPCG(seed, 15))
	states := closeStates
	if *cutsFlag == 0 {
		states = []string{closeStates[d.IntN(len(closeStates))]}
	}
	c, p := newPastCluster(t, len(states))
	alone := &closing{node: newNode(t, "alone"), past: p}
	alone.must(t, nil, "init", "-q")
	alone.must(t, nil, "ledger", "import", p.file, "-q")
	alone.launch(t)
	alone.closes(t)
	b := newBank(c.svc, fmt.Sprintf("c%x", seed))
	funds := balances{openingEach, openingEach, openingEach}
	for i, state := range states {
		var seen string
		dies := nemesis{"close", func(t testing.TB, c *cluster, _ *round, _ *rand.Rand) {
			seen = killClosing(t, c, p, state)
		}}
		funds = c.round(t, b, dies, funds, i, nil, d)
		for place := range c.nodes {
			p.refused(t, c.admin[place].Client, d.IntN(len(states)*pastPayments))
		}
		t.Logf("the leader died while the closing was %s", seen)
	}
	must(t, b.checkJournal(c.nodes[c.leader(t)].journal(t)))
	c.sameState(t)
	for _, n := range c.nodes {
		if code := n.stop(t); code != 0 {
			t.Errorf("%s ended with %d", n.name, code)
		}
	}
	n := c.nodes[0]
	p.whole(t, n, n.database(), c.gathers(t))
}

// gathers copies the files of periods of all nodes into one folder, and returns it: each file is
// where a node led that closed its period.
func (c *cluster) gathers(t testing.TB) (dir string) {
	t.Helper()
	dir = filepath.Join(c.scratch, "periods")
	must(t, os.Mkdir(dir, 0o700))
	for _, n := range c.nodes {
		files, err := filepath.Glob(filepath.Join(n.dir, "periods", "*.zst"))
		must(t, err)
		for _, file := range files {
			copyFile(t, file, filepath.Join(dir, filepath.Base(file)))
		}
	}
	return dir
}
