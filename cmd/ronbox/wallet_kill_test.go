package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/ledger/lverify"
	"ronbox/httpapi/client"
	walletapi "ronbox/httpapi/wire/wallet"
)

func (b *box) dialSocket(ctx context.Context, _, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(b.dir, "admin.sock"))
}

// batchUntilKilled runs a batch and may kill it, later with each run. It returns the output of a
// batch that ended.
func (b *box) batchUntilKilled(t *testing.T, d *rand.Rand, path string, run int, mayKill bool) (doc batchResult) {
	t.Helper()
	ctx, cancel := t.Context(), func() {}
	if mayKill {
		ctx, cancel = context.WithTimeout(ctx, 20*time.Millisecond+drawTime(d, time.Duration(20*run)*time.Millisecond))
	}
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, b.args("wallet", "batch", path, "--chunk", "20", "--json")...).Output()
	if ctx.Err() != nil {
		return batchResult{}
	}
	// the killed run before may have paid all lines
	if ended, is := errors.AsType[*exec.ExitError](err); err != nil &&
		(!is || ended.ExitCode() != cli.ExitNothingLeft) {
		t.Fatalf("%v: %s", err, out)
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return doc
}

const (
	payers    = 8
	fortune   = 1_000_000_000
	tellEvery = 5 // number of lives between checks of the whole ledger
)

// TestKill9Wallet kills the node at random points of payments and of boots. Every answered payment
// exists and a repeat gets the same bytes, a payment without an answer is made once when it is
// repeated, money is neither created nor lost, and the ledger is sound.
func TestKill9Wallet(t *testing.T) {
	skipRaceOnly(t)
	tellSeed(t)
	for done := 0; done < *kills; done += killsPerBox {
		cycles := min(killsPerBox, *kills-done)
		t.Run(fmt.Sprintf("%d-%d", done+1, done+cycles), func(t *testing.T) {
			t.Parallel() // each has a node of its own, and waits for it most of the time
			t.Logf("%d kills, %d payments", cycles, killWallet(t, cycles))
		})
	}
}

// payer pays its neighbour repeatedly with increasing nonces, and repeats a payment that got no
// answer.
type payer struct {
	box   *box
	name  string
	to    string
	nonce uint64
	gate  *sync.RWMutex // write-locked while all payers pause

	mu   sync.Mutex
	told []paid // since the last call of look
	all  int
}

// paid is a payment and its receipt.
type paid struct {
	key     string
	body    walletapi.Transfer
	receipt []byte
}

func (p *payer) run(t *testing.T, ctx context.Context) {
	c, d := p.box.client(t), draws(t, p.name)
	for ctx.Err() == nil {
		p.nonce++
		body := walletapi.Transfer{
			From:        p.name,
			To:          p.to,
			Asset:       "ron",
			AmountMinor: fmt.Sprint(1 + d.Uint64N(1000)),
			Nonce:       p.nonce,
		}
		key := fmt.Sprintf("%s-%d-%d", p.name, p.nonce, d.Uint64()) // a new key for each payment
		for {
			got, err := p.send(ctx, c, key, body)
			if err == nil {
				p.note(paid{key, body, got.Raw})
				break
			}
			if ctx.Err() != nil {
				p.nonce-- // the payment may or may not have been made
				return
			}
			if !client.Retryable(err) {
				t.Errorf("%s, nonce %d: %v", p.name, p.nonce, err)
				return
			}
			if errors.Is(err, client.ErrNotReachable) {
				time.Sleep(2 * time.Millisecond)
			}
		}
	}
}

// send blocks while look checks payments, which would otherwise have more payments to check each
// time.
func (p *payer) send(ctx context.Context, c *apiClient, key string, body walletapi.Transfer) (walletapi.Posted, error) {
	p.gate.RLock()
	defer p.gate.RUnlock()
	return c.Transfer(ctx, key, body)
}

func (p *payer) note(d paid) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, d)
	p.all++
}

// look repeats every payment that was answered since the last call and expects the same bytes.
func (p *payer) look(t *testing.T, c *apiClient) {
	p.mu.Lock()
	told := p.told
	p.told = nil
	p.mu.Unlock()
	for _, d := range told {
		got, err := d.again(t, c)
		if err != nil || !got.Replayed || !bytes.Equal(got.Raw, d.receipt) {
			t.Errorf("payment %s was answered\n%s, and now %v, replayed %t:\n%s", d.key, d.receipt, err, got.Replayed,
				got.Raw)
			return
		}
	}
}

// again repeats a payment. It retries, because a node that has just started may be busy or have a
// slow disk.
func (d paid) again(t *testing.T, c *apiClient) (got walletapi.Posted, err error) {
	for late := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if got, err = c.Transfer(t.Context(), d.key, d.body); err == nil || !client.Retryable(err) ||
			time.Now().After(late) {
			return got, err
		}
	}
}

// killWallet kills one node the given number of times and returns the number of answered payments.
func killWallet(t *testing.T, cycles int) (all int) {
	t.Helper()
	b, d := newDiskBox(t), draws(t, "kills")
	// lives are short: flush rows in each life, and seal keys in most boots
	b.env = append(b.env, "RONBOX_LEDGER__FLUSH_EVERY=5ms", "RONBOX_LEDGER__SLOT_MAX=64")
	ps := b.killPayers(t, cycles, func(p *process, i int) {
		b.killOnce(t, d, p, i)
		if i%tellEvery == tellEvery-1 {
			b.checkLedger(t)
		}
	})
	for _, payer := range ps {
		all += payer.all
	}
	return all
}

// killPayers runs payers through the given number of lives of a node. kill ends each life, and the
// payments answered in a life are checked in the next one.
func (b *box) killPayers(t *testing.T, cycles int, kill func(p *process, i int)) (ps []*payer) {
	t.Helper()
	b.env = append(b.env, "RONBOX_WALLET__LIMITS__RATE_PER_SECOND=1000000", "RONBOX_WALLET__LIMITS__BURST=1000000")
	p := b.start(t)
	var gate sync.RWMutex
	for i := range payers {
		name := fmt.Sprint("payer", i)
		must(t, nil, b.args("wallet", "issue", name, fmt.Sprint(fortune), "-q")...)
		ps = append(ps, &payer{box: b, name: name, to: fmt.Sprint("payer", (i+1)%payers), gate: &gate})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for _, payer := range ps {
		wg.Go(func() { payer.run(t, ctx) })
	}
	for i := range cycles {
		kill(p, i)
		p = b.start(t)
		c := b.client(t)
		gate.Lock()
		for _, payer := range ps {
			payer.look(t, c)
		}
		gate.Unlock()
		c.Close()
		if t.Failed() {
			break
		}
	}
	cancel()
	wg.Wait()
	b.checkMoney(t, ps)
	if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Errorf("the last life ended with %d\n%s", code, p.stderr)
	}
	b.checkLedger(t)
	return ps
}

// killOnce kills the node during its work, and sometimes once more during boot.
func (b *box) killOnce(t *testing.T, d *rand.Rand, p *process, i int) {
	t.Helper()
	kill := func(p *process, most time.Duration) {
		time.AfterFunc(drawTime(d, most), func() { _ = p.cmd.Process.Signal(syscall.SIGKILL) })
		<-p.done
	}
	kill(p, 60*time.Millisecond)
	if i%tellEvery == 0 {
		kill(b.launch(t), 100*time.Millisecond)
	}
}

// checkMoney expects the sum of all balances to equal the issued amount. It reads all balances at
// one head of the ledger, because the payment of a disconnected caller may still be made.
func (b *box) checkMoney(t *testing.T, ps []*payer) {
	t.Helper()
	c := b.client(t)
	var sum *big.Int
	until(t, "the ledger stands still while it is read", func() bool {
		before, err := c.LedgerHead(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sum = sumOf(t, c, append([]string{"alice"}, names(ps)...), before.Seq)
		after, err := c.LedgerHead(t.Context())
		return err == nil && after == before
	})
	list, err := c.Assets(t.Context())
	if err != nil || len(list.Assets) != 1 || list.Assets[0].SupplyMinor != sum.String() ||
		sum.Int64() != payers*fortune+1_000_000 {
		t.Errorf("balances are %s in all, issued was %+v (%v)", sum, list, err)
	}
}

// sumOf adds up balances that are at least as recent as the record seq.
func sumOf(t *testing.T, c *apiClient, accounts []string, seq uint64) *big.Int {
	t.Helper()
	sum := new(big.Int)
	for _, name := range accounts {
		balance, err := c.Balance(t.Context(), name, "ron", seq)
		n, ok := new(big.Int).SetString(balance.PostedMinor, 10)
		if err != nil || !ok {
			t.Fatalf("%s: %v", name, err)
		}
		sum.Add(sum, n)
	}
	return sum
}

func names(ps []*payer) (out []string) {
	for _, p := range ps {
		out = append(out, p.name)
	}
	return out
}

// checkLedger verifies the ledger of a stopped node.
func (b *box) checkLedger(t *testing.T) {
	t.Helper()
	r := spawn(t, b.args("ledger", "verify", "--json")...)
	var doc lverify.Report
	if decode(t, r.stdout, &doc); r.code != cli.ExitDone || !doc.OK {
		t.Fatalf("verify: exit %d, %+v\n%s", r.code, doc, r.stderr)
	}
}
