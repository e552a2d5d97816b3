package wallet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance"
	"ronbox/appliance/config"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines"
	"ronbox/httpapi/client"
	ledgerapi "ronbox/httpapi/ledger"
	nodeapi "ronbox/httpapi/node"
	walletapi "ronbox/httpapi/wallet"
)

// turnBank is a node that a run calls when it is its turn.
type turnBank struct {
	batchNode
	wait func()
}

func (t turnBank) History(ctx context.Context, q walletapi.HistoryQuery) (walletapi.History, error) {
	t.wait()
	return t.batchNode.History(ctx, q)
}

func (t turnBank) LedgerHead(ctx context.Context) (ledgerapi.LedgerHead, error) {
	t.wait()
	return t.batchNode.LedgerHead(ctx)
}

func (t turnBank) Roots(ctx context.Context, since uint64, limit int) (ledgerapi.Roots, error) {
	t.wait()
	return t.batchNode.Roots(ctx, since, limit)
}

func (t turnBank) Account(ctx context.Context, account string) (walletapi.Account, error) {
	t.wait()
	return t.batchNode.Account(ctx, account)
}

func (t turnBank) Batch(ctx context.Context, key string, b walletapi.Batch) (walletapi.BatchPosted, error) {
	t.wait()
	return t.batchNode.Batch(ctx, key, b)
}

// turns runs body up to its next wait, each time that it is called; false once body has ended.
func turns(body func(wait func())) (next func() bool, stop func()) {
	step, stop := iter.Pull(func(yield func(struct{}) bool) {
		going := true
		body(func() { going = going && yield(struct{}{}) })
	})
	return func() bool { _, more := step(); return more }, stop
}

// takeTurns lets one of those that go on make some calls, then one again, until all have ended.
func takeTurns(rng *rand.Rand, going []func() bool, check func()) {
	for len(going) > 0 {
		i := rng.IntN(len(going))
		for range 1 + rng.IntN(6) {
			more := going[i]()
			if check(); !more {
				going = append(going[:i], going[i+1:]...)
				break
			}
		}
	}
}

// Two runs of one name at the same time, with states of their own, in chunks of their own, and through lost answers and
// kills, do no row twice, whichever of them is called when.
func TestTwoBatchesOfOneName(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		draw := rng.IntN
		if rapid.Bool().Draw(t, "nothing is lost") {
			draw = func(int) int { return 7 }
		}
		f := newFakeBank(draw)
		for _, name := range []string{"a", "b", "c"} {
			f.balance[name] = rapid.IntRange(0, 20).Draw(t, "balance")
		}
		rows := drawSameRows(t, 0, rapid.IntRange(1, 15).Draw(t, "rows"))
		if err := identify(rows); err != nil {
			t.Fatal(err)
		}
		var going []func() bool
		for i := range 2 {
			state, most := filepath.Join(dir, fmt.Sprint(n, "-", i)), rapid.IntRange(1, 6).Draw(t, "most")
			next, stop := turns(func(wait func()) {
				b, err := runFake(t, turnBank{f, wait}, rows, state, modeIndependent, most, false)
				for tries := 0; err != nil && reasonOf(err) != reasonDoneBefore; tries++ {
					if !errors.Is(err, errKilled) && !errors.Is(err, client.ErrUnknown) && cli.Classify(err).Reason != "nonce_taken" || tries > 2000 {
						t.Fatal(err)
					}
					b, err = runFake(t, turnBank{f, wait}, rows, state, modeIndependent, most, false)
				}
				if err == nil {
					checkSame(t, f, b, rows)
				}
			})
			defer stop()
			going = append(going, next)
		}
		takeTurns(rng, going, func() { checkSame(t, f, nil, rows) })
	})
}

// The slower of two runs is refused its rows for a cause that comes before the nonce: those that the other has paid are told
// as paid, those that nobody has paid as refused, and of a file of all or none that was paid in part a person is told.
func TestTwoBatchesAndALock(t *testing.T) {
	const text = payHead + "transfer,a,b,ron,1,\ntransfer,a,c,ron,2,\ntransfer,d,c,ron,3,\n"
	for _, tt := range []struct {
		other  string // what the other run has paid
		flags  batchFlags
		out    string
		reason string
	}{
		{text, batchFlags{chunk: 4}, `"accepted":3,"refused":[]`, ""},
		{text, batchFlags{chunk: 1}, `"accepted":3,"refused":[]`, ""},
		{text, batchFlags{chunk: 4, atomic: true}, `"accepted":3,"refused":[]`, ""},
		{payHead, batchFlags{chunk: 4}, `"accepted":0,"refused":[{"row":0,"line":2,"code":"ACCOUNT_LOCKED"`, ""},
		{oneRow, batchFlags{chunk: 4}, `"accepted":1,"refused":[{"row":1,`, ""},
		{payHead + "transfer,d,c,ron,3,\n", batchFlags{chunk: 4}, `"accepted":1,"refused":[{"row":0,`, ""},
		{payHead + "transfer,d,c,ron,3,\n", batchFlags{chunk: 4, atomic: true}, "", reasonDoneBefore},
		{payHead, batchFlags{chunk: 4, atomic: true}, `"accepted":0,"refused":[{"row":0,"line":2,"code":"ACCOUNT_LOCKED"`, ""},
	} {
		f := richBank()
		f.balance["d"] = 9
		f.deny = func(walletapi.Batch) (err error) {
			if f.deny = nil; tt.other != payHead {
				_, err = payFile(t, f, tt.other, batchFlags{chunk: 1})
			}
			f.locked = true
			return err
		}
		out, err := payFile(t, f, text, tt.flags)
		if reasonOf(err) != tt.reason || !strings.Contains(out, tt.out) {
			t.Errorf("%q, %+v: %v: %s", tt.other, tt.flags, err, out)
		}
	}
}

// On a node two runs of one file at the same time, called in turns as drawn, with states and chunks of their own and some
// rows refused, pay every other row once.
func TestTwoBatchesOnANode(t *testing.T) {
	c, dir := devNode(t), t.TempDir()
	was, err := c.Account(t.Context(), engines.IssuanceAccount(defaultAsset))
	if err != nil {
		t.Fatal(err)
	}
	issued := was.LastNonce
	for trial := range 20 {
		rng := rand.New(rand.NewPCG(uint64(trial), 0))
		payer, payee := fmt.Sprint("payer", trial), fmt.Sprint("payee", trial)
		if _, err := c.Issue(t.Context(), payer, walletapi.Issue{To: payer, Asset: defaultAsset, AmountMinor: "100", Nonce: issued + uint64(trial) + 1}); err != nil {
			t.Fatal(err)
		}
		text := payHead
		for i := range 12 {
			text += fmt.Sprintf("transfer,%s,%s,ron,%d,%d\n", payer, payee, 1+1000*(1-i%2), i)
		}
		rows, err := parseBatch("pay.csv", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		var going []func() bool
		for i := range 2 {
			next, stop := turns(func(wait func()) {
				run, err := runFake(t, turnBank{c, wait}, rows, filepath.Join(dir, fmt.Sprint(trial, "-", i)), modeIndependent, 2+rng.IntN(5), false)
				if err != nil || run.out.Accepted != 6 || len(run.out.Refused) != 6 {
					t.Errorf("trial %d: %v, %+v", trial, err, run.out)
				}
			})
			defer stop()
			going = append(going, next)
		}
		takeTurns(rng, going, func() {})
		h, err := c.History(t.Context(), walletapi.HistoryQuery{Account: payee, Asset: defaultAsset, Limit: 500})
		if err != nil || len(h.Entries) != 6 {
			t.Errorf("trial %d: %d payments for 6 rows, %v", trial, len(h.Entries), err)
		}
	}
}

// devNode runs a dev node until the test ends, and gives a client of its socket.
func devNode(t *testing.T) walletapi.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "rb") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o := config.LoadOptions{DataDir: filepath.Join(dir, "d"), Env: []string{"RONBOX_SERVER__BIND=127.0.0.1:0", "RONBOX_LOG__LEVEL=error", "RONBOX_LEDGER__STALL_AFTER=2s"}}
	cfg, err := config.Load(o)
	if err == nil {
		_, err = appliance.Init(t.Context(), cfg, appliance.InitOptions{Dev: true})
	}
	if err == nil {
		cfg, err = config.Load(o) // init wrote the file
	}
	if err != nil {
		t.Fatal(err)
	}
	node, err := appliance.New(cfg, appliance.Build{}, appliance.Options{})
	if err != nil {
		t.Fatal(err)
	}
	running, ended := make(chan struct{}), make(chan struct{})
	node.OnRunning(func(nodeapi.Status) { close(running) })
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		node.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-ended })
	select {
	case <-running:
	case <-ended:
		t.Fatal("the node has not begun to serve")
	}
	c, err := client.New(client.Options{Socket: cfg.SocketPath(), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return walletapi.NewClient(c)
}
