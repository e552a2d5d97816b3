package clustertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/cmd/ronbox/namestest"
)

// The clients of one round, and the mean pause of a client between two requests.
const (
	bankClients = 5
	nameClients = 3
	clientPause = 40 * time.Millisecond
	repetitions = 50 // acknowledged transfers that a round repeats
)

// round is a time of load with one nemesis. It begins and ends with all nodes well and known
// balances.
type round struct {
	bank      *bank
	names     *names
	payments  *history
	lookups   *history
	opening   balances
	loads     []load
	undecided int // transfers that were open when the clients stopped

	struck, well time.Duration // since the start: the nemesis has ended, the cluster is well
}

// load is a further load of a round, whose clients run until their context ends. check is called
// after them, when all nodes are well.
type load interface {
	clients() []func(ctx context.Context, d *rand.Rand)
	check(ctx context.Context, d *rand.Rand) error
}

// loads returns the further loads of -loads.
func (c *cluster) loads(t testing.TB, prefix string) (out []load) {
	t.Helper()
	if strings.Contains(*loadsFlag, "versions") {
		out = append(out, newVersions(t, c, c.secret))
	}
	if strings.Contains(*loadsFlag, "events") {
		out = append(out, newEvents(c))
	}
	if strings.Contains(*loadsFlag, "rewards") {
		out = append(out, newRewards(t, c, c.secret, prefix))
	}
	return out
}

func newRound(svc service, b *bank, opening balances, n int, loads ...load) *round {
	return &round{
		bank: b, names: &names{svc: svc, round: n}, payments: &history{}, lookups: &history{}, opening: opening,
		loads: loads,
	}
}

// start starts the clients. wait returns when ctx has ended and all clients have returned.
func (r *round) start(ctx context.Context, d *rand.Rand) (wait func()) {
	var clients sync.WaitGroup
	for id := range bankClients {
		d := rand.New(rand.NewPCG(d.Uint64(), 0))
		clients.Go(func() { r.bank.run(ctx, r.payments, id, d, clientPause) })
	}
	for id := range nameClients {
		d := rand.New(rand.NewPCG(d.Uint64(), 0))
		clients.Go(func() { r.names.run(ctx, r.lookups, id, d, clientPause) })
	}
	for _, l := range r.loads {
		for _, client := range l.clients() {
			d := rand.New(rand.NewPCG(d.Uint64(), 0))
			clients.Go(func() { client(ctx, d) })
		}
	}
	return clients.Wait
}

// close settles open transfers, repeats others, and returns the balances. All nodes are well and all
// clients have returned.
func (r *round) close(ctx context.Context, d *rand.Rand) (closing balances, err error) {
	r.undecided = r.bank.settleOpen(ctx, r.payments, d)
	r.bank.repeatSome(ctx, d, repetitions)
	closing, err = r.bank.now(ctx, r.payments, d)
	if err == nil && closing.sum() != r.opening.sum() {
		err = fmt.Errorf("all balances were %d, and are %d", r.opening.sum(), closing.sum())
	}
	for _, l := range r.loads {
		err = errors.Join(err, l.check(ctx, d))
	}
	return closing, errors.Join(err, r.bank.err(), r.names.err())
}

// check checks the histories.
func (r *round) check() error {
	return errors.Join(r.payments.check("three accounts", r.bank.model(r.opening)),
		r.lookups.check("names", namestest.Model()))
}
