package clustertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/host/hosttest"
)

// open makes and starts a node with the accounts of the bank, and returns its token.
func (n *node) open(t testing.TB) (token string) {
	t.Helper()
	n.must(t, nil, "init", "--dev", "-q")
	return n.funds(t)
}

// funds starts a node with data, opens the accounts of the bank, and returns its token.
func (n *node) funds(t testing.TB) (token string) {
	t.Helper()
	n.launch(t)
	c := n.socket(t)
	until(t, n.name+" is ready", []*node{n}, func() bool { return ready(t.Context(), c) })
	for i := range accounts {
		n.must(t, nil, "wallet", "issue", till(i), fmt.Sprint(openingEach), "-q")
	}
	raw, err := os.ReadFile(filepath.Join(n.dir, "admin.token"))
	must(t, err)
	return strings.TrimSpace(string(raw))
}

// A node alone passes the checks of a cluster while it is killed.
func TestNodeAlone(t *testing.T) {
	t.Parallel()
	if hosttest.UnderRace() {
		t.Skip("what counts is another process")
	}
	seed := hosttest.Seed(t, "CLUSTER_SEED")
	d := rand.New(rand.NewPCG(seed, 0))
	c := newNodes(t, 1)
	n, b := c.nodes[0], newBank(c.svc, "k")
	loads := c.loads(t, "e")
	funds := balances{openingEach, openingEach, openingEach}
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	for i := range rounds {
		r := newRound(c.svc, b, funds, i, loads...)
		ctx, stop := context.WithCancel(t.Context())
		wait := r.start(ctx, d)
		time.Sleep(time.Duration(500+d.IntN(1000)) * time.Millisecond) // load, not a wait for an event
		n.kill()
		n.launch(t)
		until(t, "the node is ready", c.nodes, func() bool { return ready(t.Context(), c.admin[0].Client) })
		stop()
		wait()
		closing, err := r.close(t.Context(), d)
		must(t, err)
		must(t, r.check())
		t.Logf("%d payments and reads, %d lookups, %d open: %v", r.payments.size(), r.lookups.size(), r.undecided,
			closing)
		funds = closing
	}
	must(t, b.checkJournal(n.journal(t)))
	if v := n.snapshot(t); !v.OK {
		t.Errorf("the snapshot: %+v", v)
	}
	if code := n.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
