package clustertest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ronbox/appliance/host/hosttest"
	clusterapi "ronbox/httpapi/wire/cluster"
)

// half is the part of a cluster that some of its nodes are after a recover. Its places are those of
// its own nodes.
func (c *cluster) half(t testing.TB, places ...int) *cluster {
	t.Helper()
	h := &cluster{links: c.links, scratch: c.scratch, token: c.token, secret: c.secret}
	for _, i := range places {
		h.nodes, h.admin = append(h.nodes, c.nodes[i]), append(h.admin, c.admin[i])
	}
	h.svc = newService(t, c.secret, h.nodes...)
	return h
}

// pay makes payments under new keys until so many are acknowledged, and returns the keys.
func (c *cluster) pay(t testing.TB, d *rand.Rand, prefix string, count int) (keys []string) {
	t.Helper()
	b := newBank(c.svc, prefix)
	for i := range count {
		o := openTransfer{key: fmt.Sprint(prefix, "-", i), in: bankIn{from: i % accounts, to: (i + 1) % accounts, amount: 1}}
		for !b.settle(t.Context(), &history{}, &o, d) || b.given[o.key] {
			delete(b.given, o.key)
			must(t, t.Context().Err())
		}
		keys = append(keys, o.key)
	}
	must(t, b.err())
	return keys
}

// mustHave expects the journal of the node that leads to have these transfers and no others, each
// once.
func (c *cluster) mustHave(t testing.TB, keys ...[]string) {
	t.Helper()
	journal := c.nodes[c.leader(t)].journal(t)
	got, want := slices.Sorted(maps.Keys(journal)), slices.Sorted(slices.Values(slices.Concat(keys...)))
	if !slices.Equal(got, want) {
		t.Errorf("the journal has %v, want %v", got, want)
	}
	for key, tx := range journal {
		if len(tx) != 1 {
			t.Errorf("key %s has transactions %v", key, tx)
		}
	}
}

// A node is not recovered while the others run. If it is recovered when they do not, and they come
// back, there are two clusters: each has its own writes only, and the old one says what has become of
// the node. With a token of the other cluster the nodes of either rejoin, and have what that one has.
func TestRecover(t *testing.T) {
	if *planFlag == "" {
		t.Skip("half a minute: `make check` runs it")
	}
	d := rand.New(rand.NewPCG(hosttest.Seed(t, "CLUSTER_SEED"), 1))
	c := newCluster(t, 3)
	i := c.follower(t, d)
	n, others := c.nodes[i], []int{(i + 1) % 3, (i + 2) % 3}
	if d.IntN(2) == 0 {
		slices.Reverse(others)
	}
	both := c.pay(t, d, "both", 10)
	recoverMe := []string{"cluster", "recover", "--only-me", "--yes", "--json"}

	// the others run
	was := c.id(t, i)
	if code := n.stop(t); code != exitClean {
		t.Errorf("exit %d", code)
	}
	until(t, "the refusal names the others", nil, func() bool { // each may answer too late
		_, err := n.ronbox(t.Context(), recoverMe...)
		if err == nil || !strings.Contains(err.Error(), `"others_run"`) {
			t.Fatalf("recover beside the others: %v", err)
		}
		t.Logf("recover beside the others: %v", err)
		return strings.Contains(err.Error(), c.links.address(others[0])) &&
			strings.Contains(err.Error(), c.links.address(others[1]))
	})
	c.start(t, i)
	c.well(t)
	if now := c.id(t, i); now != was {
		t.Errorf("a refused recover has made %s of %s", now, was)
	}

	// they are lost
	for _, j := range others {
		c.nodes[j].kill()
	}
	n.signal(syscall.SIGTERM)
	c.stopped(t, i)
	n.must(t, nil, recoverMe...)
	c.start(t, i)
	one := c.half(t, i)
	one.well(t)
	mine := one.pay(t, d, "mine", 10)

	// they are back
	for _, j := range others {
		c.start(t, j)
	}
	old := c.half(t, others...)
	theirs := old.pay(t, d, "theirs", 10)
	until(t, "the old cluster tells of the node", c.nodes, func() bool {
		s, err := old.status(t, old.leader(t))
		return err == nil && slices.ContainsFunc(s.Members, func(m clusterapi.Member) bool {
			return m.ID == was && !m.Healthy && strings.Contains(m.Note, "another cluster")
		})
	})
	one.mustHave(t, both, mine)
	old.mustHave(t, both, theirs)
	s, err := one.status(t, 0)
	if err != nil || len(s.Members) != 1 || s.Self == was {
		t.Errorf("the recovered node: %+v, %v", s, err)
	}
	if v := n.snapshot(t); !v.OK {
		t.Errorf("the recovered file: %+v", v)
	}

	if d.IntN(2) == 0 { // the recovered node gives up what it has
		c.nodes[others[old.leader(t)]].must(t, nil, "cluster", "remove", was, "--yes", "--json")
		n.signal(syscall.SIGTERM)
		c.stopped(t, i)
		c.rejoinOther(t, old, i)
		c.well(t)
		c.mustHave(t, both, theirs, c.pay(t, d, "after", 10))
		c.sameState(t)
		return
	}
	// the others do
	for _, j := range others {
		c.nodes[j].signal(syscall.SIGTERM)
	}
	for _, j := range others {
		c.stopped(t, j)
	}
	_, err = c.nodes[others[0]].ronbox(t.Context(), "cluster", "rejoin", "--wipe")
	if err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("a rejoin without a token of the recovered node: %v", err)
	}
	c.rejoinOther(t, one, others[0])
	c.half(t, i, others[0]).well(t)
	c.rejoinOther(t, one, others[1])
	c.well(t)
	c.mustHave(t, both, mine, c.pay(t, d, "after", 10))
	c.sameState(t)
}

// rejoinOther lets a stopped node begin anew in another cluster than its own.
func (c *cluster) rejoinOther(t testing.TB, other *cluster, i int) {
	t.Helper()
	var token struct {
		Token string `json:"token"`
		URL   string `json:"url"`
	}
	other.nodes[other.leader(t)].must(t, &token, "cluster", "token", "--json")
	c.nodes[i].must(t, nil, "cluster", "rejoin", "--wipe", token.URL, "--token", token.Token, "--json")
	c.start(t, i)
}
