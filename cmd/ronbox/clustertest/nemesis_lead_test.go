package clustertest

import (
	"context"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	clusterapi "ronbox/httpapi/wire/cluster"
	nodeapi "ronbox/httpapi/wire/node"
	walletapi "ronbox/httpapi/wire/wallet"
)

const (
	// aheadTime is the time for which the clock of a leader is ahead. It is not believed so soon.
	aheadTime = 6 * time.Second

	// mostAhead bounds by how much the reading of a node may be ahead of the true time then.
	mostAhead = 11 * time.Second
)

// spare is an account that only nemeses use.
const spare = "spare"

// pays reports whether a node takes a payment.
func (c *cluster) pays(ctx context.Context, place int, key string) bool {
	ctx, stop := context.WithTimeout(ctx, askWithin)
	defer stop()
	_, err := c.svc.wallets[place].Transfer(ctx, key, walletapi.Transfer{
		From: spare, To: "sink", Asset: "ron", AmountMinor: "1",
	})
	return err == nil
}

// taken waits until a node other than the one at i leads and every node takes a payment, and logs
// the times since from. The one at i may end.
func (c *cluster) taken(t testing.TB, i int, from time.Time) {
	t.Helper()
	others := slices.Delete(slices.Clone(c.nodes), i, i+1)
	until(t, "another node leads", others, func() bool { return c.leader(t) != i })
	led := time.Since(from)
	for place, n := range c.nodes {
		key := from.Format(time.RFC3339Nano) + n.name
		until(t, "a payment at "+n.name, others, func() bool {
			return c.pays(t.Context(), place, key) || !n.running()
		})
	}
	t.Logf("another node leads after %.1fs, all take payments after %.1fs", led.Seconds(), time.Since(from).Seconds())
}

// endow gives the account of the nemeses some money.
func (c *cluster) endow(t testing.TB, i int) {
	t.Helper()
	c.nodes[i].must(t, nil, "wallet", "issue", spare, "100", "-q")
}

// transferOften transfers the leadership several times, to any voter or to one that is named. One
// that has just begun a life may be refused.
func transferOften(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	for range 2 + d.IntN(4) {
		i := c.leader(t)
		to := ""
		if d.IntN(2) == 0 {
			to = c.id(t, c.follower(t, d))
		}
		done, err := c.admin[i].TransferLeadership(t.Context(), to)
		t.Logf("%+v, err = %v", done, err)
		hold(time.Duration(d.Int64N(int64(time.Second))))
	}
}

// fillLeader lets all writes of the leader to its log and its file fail for want of room, until
// another node leads.
func fillLeader(t testing.TB, c *cluster, _ *round, _ *rand.Rand) {
	i := c.leader(t)
	c.endow(t, i)
	n := c.nodes[i]
	from := time.Now()
	s := n.trace(t, "pwrite64,fallocate,ftruncate", "error=ENOSPC", append(n.logFiles(t), n.database())...)
	c.taken(t, i, from)
	s.stop()
	c.wellOrEnds(t, i, exitStorage)
}

// turnLeaderBack sets the clock of the leader an hour back, until another node leads.
func turnLeaderBack(t testing.TB, c *cluster, _ *round, _ *rand.Rand) {
	i := c.leader(t)
	c.endow(t, i)
	from := time.Now()
	c.nodes[i].turn(t, -time.Hour)
	c.taken(t, i, from)
	c.nodes[i].turn(t, 0)
}

// turnLeaderAhead sets the clock of the leader an hour or a month ahead for a short time. No node
// believes it, and payments go on.
func turnLeaderAhead(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	i := c.leader(t)
	c.endow(t, i)
	by := time.Hour
	if d.IntN(2) == 0 {
		by = 30 * 24 * time.Hour
	}
	from := time.Now()
	c.nodes[i].turn(t, by)
	hold(aheadTime)
	for place, n := range c.nodes {
		at, err := nodeapi.NewClient(c.admin[place].Client).Clock(t.Context())
		must(t, err)
		if ahead := time.Until(at.Reading); ahead > mostAhead {
			t.Errorf("the reading of %s is %s ahead", n.name, ahead)
		}
	}
	c.nodes[i].turn(t, 0)
	for place, n := range c.nodes {
		key := from.Format(time.RFC3339Nano) + n.name
		until(t, "a payment at "+n.name, c.nodes, func() bool { return c.pays(t.Context(), place, key) })
	}
}

// moveOne restarts a node, the leader or another one, at another address.
func moveOne(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	i := c.leader(t)
	who := "the leader"
	if d.IntN(2) == 0 {
		i, who = c.follower(t, d), "a follower"
	}
	n, id := c.nodes[i], c.id(t, i)
	n.signal(syscall.SIGTERM)
	c.stopped(t, i)
	c.links.move(t, i)
	n.env = append(n.env, "RONBOX_CLUSTER__ADVERTISE="+c.links.address(i))
	c.start(t, i)
	from := time.Now()
	until(t, "the others reach "+n.name, c.nodes, func() bool {
		s, err := c.status(t, c.leader(t))
		return err == nil && slices.ContainsFunc(s.Members, func(m clusterapi.Member) bool {
			return m.ID == id && m.Address == c.links.address(i) && m.Answers
		})
	})
	t.Logf("%s has moved: reached after %.1fs", who, time.Since(from).Seconds())
}
