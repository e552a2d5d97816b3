package clustertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/host/hosttest"
)

// compareEvery is the number of rounds after which the files of all nodes are compared.
const compareEvery = 20

// planned returns the nemeses of a plan, such as "lead=200,all=50" or "each", in random order.
func planned(plan string, d *rand.Rand) (out []nemesis, err error) {
	all := nemeses()
	if plan == "each" {
		out = all
	} else {
		for part := range strings.SplitSeq(plan, ",") {
			name, count, _ := strings.Cut(part, "=")
			n, err := strconv.Atoi(count)
			if err != nil {
				return nil, fmt.Errorf("-plan %s: want NAME=COUNT", part)
			}
			known := false
			for _, nem := range all {
				known = known || nem.name == name
				for i := 0; i < n && nem.name == name; i++ {
					out = append(out, nem)
				}
			}
			if !known {
				return nil, fmt.Errorf("-plan %s: no such nemesis", name)
			}
		}
	}
	d.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out, nil
}

// Every acknowledged effect exists once and histories are linearizable, while nodes of a cluster of
// three are killed, paused, cut off and replaced. At the end all files are equal.
func TestNemeses(t *testing.T) {
	if *planFlag == "" {
		t.Skip("minutes: `make check` runs ten nemeses, `make check-cluster` hundreds")
	}
	seed := hosttest.Seed(t, "CLUSTER_SEED")
	d := rand.New(rand.NewPCG(seed, 0))
	plan, err := planned(*planFlag, d)
	must(t, err)
	c := newCluster(t, 3)
	b := newBank(c.svc, fmt.Sprintf("n%x", seed))
	loads := c.loads(t, fmt.Sprintf("e%x", seed))
	funds := balances{openingEach, openingEach, openingEach}
	for i, nem := range plan {
		funds = c.round(t, b, nem, funds, i, loads, rand.New(rand.NewPCG(seed, 1+uint64(i))))
		if i%compareEvery == compareEvery-1 || i == len(plan)-1 {
			v := c.sameState(t)
			t.Logf("all files have the state %s at position %d", v.StateHash, v.Seq)
		}
	}
	must(t, b.checkJournal(c.nodes[c.leader(t)].journal(t)))
	for _, n := range c.nodes {
		if code := n.stop(t); code != 0 {
			t.Errorf("%s ended with %d", n.name, code)
		}
	}
}

// round runs the load with one nemesis and returns the balances at the end.
func (c *cluster) round(t *testing.T, b *bank, nem nemesis, opening balances, n int, loads []load,
	d *rand.Rand) balances {
	t.Helper()
	r := newRound(c.svc, b, opening, n, loads...)
	closing, err := c.play(t, r, nem, d)
	if err := errors.Join(err, r.check()); err != nil {
		t.Fatalf("%d %s: %v", n, nem.name, err)
	}
	t.Logf("%3d %-8s struck %4.1fs, well %4.1fs, %5d payments and reads, %4d lookups, %2d open, %v", n, nem.name,
		r.struck.Seconds(), r.well.Seconds(), r.payments.size(), r.lookups.size(), r.undecided, closing)
	return closing
}

// play runs the load of a round with a nemesis.
func (c *cluster) play(t *testing.T, r *round, nem nemesis, d *rand.Rand) (closing balances, err error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began := time.Now()
	wait := r.start(ctx, rand.New(rand.NewPCG(d.Uint64(), 0)))
	hold(*holdFlag / 4)
	nem.does(t, c, r, d)
	r.struck = time.Since(began)
	c.well(t)
	r.well = time.Since(began)
	hold(max(*holdFlag-r.well, *holdFlag/4))
	stop()
	wait()
	return r.close(t.Context(), d)
}
