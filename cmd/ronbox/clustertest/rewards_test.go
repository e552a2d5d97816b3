package clustertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	rewarderapi "ronbox/httpapi/wire/rewarder"
	walletapi "ronbox/httpapi/wire/wallet"
)

// An epoch of the rewarder pays rewardPool to rewardActors.
const (
	rewardPool    = 1_003
	rewardActors  = 20
	rewardFunds   = 1_000_000_000
	rewardAccount = "pool:protocol"
)

// rewards is the load of the rewarder: epochs that pay new actors.
type rewards struct {
	loud
	c       *cluster
	key     string // that signs policies
	prefix  string // of epochs and actors
	apis    []rewarderapi.Client
	wallets []walletapi.Client
	count   int
	epochs  []string // of this round, that were accepted
}

func newRewards(t testing.TB, c *cluster, token, prefix string) *rewards {
	t.Helper()
	r := &rewards{c: c, prefix: prefix, key: filepath.Join(c.scratch, "policy.key")}
	for _, n := range c.nodes {
		api := n.client(t, token, 4*askWithin)
		r.apis = append(r.apis, rewarderapi.NewClient(api))
		r.wallets = append(r.wallets, walletapi.NewClient(api))
	}
	return r
}

func (r *rewards) clients() []func(context.Context, *rand.Rand) {
	return []func(context.Context, *rand.Rand){r.run}
}

// run starts an epoch after the other until ctx ends. It repeats a run until it is accepted.
func (r *rewards) run(ctx context.Context, d *rand.Rand) {
	for ctx.Err() == nil {
		r.count++
		epoch := fmt.Sprint(r.prefix, "-", r.count)
		usage := filepath.Join(r.c.scratch, "usage.csv")
		var csv strings.Builder
		csv.WriteString("actor,metric,qty\n")
		for i := range rewardActors {
			fmt.Fprintf(&csv, "%s/a%d,requests,%d\n", epoch, i, 1+d.IntN(1_000))
		}
		if err := os.WriteFile(usage, []byte(csv.String()), 0o600); err != nil {
			r.fault("%w", err)
			return
		}
		for {
			n := r.c.nodes[d.IntN(len(r.c.nodes))]
			_, err := n.remote(context.Background(), r.c.token, "rewarder", "run", epoch, usage, "--policy",
				policyFile, "--key", r.key, "--pool", strconv.Itoa(rewardPool), "--json",
				"--timeout", "4s")
			if err == nil {
				r.epochs = append(r.epochs, epoch)
				break
			}
			if !retry(err) {
				r.fault("%w", err)
				return
			}
			if ctx.Err() != nil { // it may be accepted or not
				return
			}
			shortPause(ctx, d, 100*time.Millisecond)
		}
		shortPause(ctx, d, 2*time.Second)
	}
}

// check expects the epochs of the round to be settled, and their actors to have the whole pool.
func (r *rewards) check(ctx context.Context, d *rand.Rand) error {
	for _, epoch := range r.epochs {
		place := d.IntN(len(r.apis))
		var state string
		for late := time.Now().Add(patience); state != "settled" && time.Now().Before(late); {
			if got, err := r.apis[place].Epoch(ctx, epoch); err == nil {
				state = string(got.State)
			}
			shortPause(ctx, d, 50*time.Millisecond)
		}
		paid := 0
		for i := range rewardActors {
			var got walletapi.Balance
			err := repeat(ctx, func(ctx context.Context) (err error) {
				got, err = r.wallets[place].Balance(ctx, fmt.Sprint(epoch, "/a", i), "ron", 0)
				return err
			})
			n, bad := strconv.Atoi(got.PostedMinor)
			if err != nil || bad != nil {
				r.fault("actor %d of %s: %q, %w", i, epoch, got.PostedMinor, err)
				return r.err()
			}
			paid += n
		}
		if state != "settled" || paid != rewardPool {
			r.fault("epoch %s is %s, and its actors have %d", epoch, state, paid)
		}
	}
	r.epochs = nil
	return r.err()
}
