package load

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/host/hosttest"
	ledgerapi "ronbox/httpapi/wire/ledger"
	walletapi "ronbox/httpapi/wire/wallet"
)

// Sizes of the load. LOAD_SECONDS sets its duration; the load then uses payAccounts and sends one
// request in a hundred twice. Without LOAD_SECONDS each connection makes loadPayments payments and
// sends one request in ten twice, so that a short run covers each kind of repetition.
const (
	loadPayments = 16
	loadAccounts = 10 * payConns
	loadKept     = 64 // last payments of a connection that it may repeat
	loadTold     = 30 * time.Second
)

// load is the load of all connections on one node.
type load struct {
	*bank
	every int            // one request in this number is sent twice
	until time.Time      // zero: until each connection has made loadPayments
	moved []atomic.Int64 // by account: received minus paid
	paid  atomic.Int64
	twice [3]atomic.Int64 // by kind: later, concurrently, after the first answer was lost

	mu  sync.Mutex
	sum tally // guarded by mu; results since the last progress line
}

// loader has one connection for payments and a new one for each repetition, because the node would
// close an idle connection.
type loader struct {
	*load
	c, beside *caller
	d         *rand.Rand
	from      int
	done      []receipted
}

// receipted is an answered payment.
type receipted struct{ request, receipt []byte }

// Under load, some requests are sent twice: a moment later, concurrently, or after the first answer
// was lost. Each payment is made once. A repetition gets the bytes of the first answer. Every final
// answer has status 200. At the end every balance and the number of records match the payments.
func TestLoadWithDuplicates(t *testing.T) {
	t.Parallel()
	seed, seconds := hosttest.Seed(t, "LOAD_SEED"), hosttest.Number(t, "LOAD_SECONDS")
	l := &load{every: 10}
	accounts := loadAccounts
	if seconds != 0 {
		l.every, accounts = 100, payAccounts
	}
	l.bank, l.moved = openBank(t, "bank-verified", accounts), make([]atomic.Int64, accounts)
	defer l.peer.end()
	before := l.head()
	t.Logf("at first %s", l.memory())
	if seconds != 0 {
		l.until = time.Now().Add(time.Duration(seconds) * time.Second)
	}
	stop, told := make(chan struct{}), make(chan struct{})
	go l.tell(t, stop, told)
	var all sync.WaitGroup
	for i := range payConns {
		all.Go(func() {
			one := &loader{
				load:   l,
				c:      &caller{addr: l.addr},
				beside: &caller{addr: l.addr},
				d:      rand.New(rand.NewPCG(seed, uint64(i))),
				from:   i,
			}
			if err := one.run(); err != nil {
				t.Error(err)
			}
			one.c.hangUp()
		})
	}
	all.Wait()
	close(stop)
	<-told
	later, atOnce, lost := l.twice[0].Load(), l.twice[1].Load(), l.twice[2].Load()
	t.Logf("%d payments; %d requests came again later, %d twice at once, %d after a lost answer", l.paid.Load(), later,
		atOnce, lost)
	if later == 0 || atOnce == 0 || lost == 0 {
		t.Error("a kind of repetition is missing")
	}
	if made := l.head().Seq - before.Seq; made != uint64(l.paid.Load()) {
		t.Errorf("%d payments left %d records", l.paid.Load(), made)
	}
	l.balanced(func(i int) int64 { return funds + l.moved[i].Load() })
}

// run pays from the accounts of this connection in turn.
func (l *loader) run() error {
	for n := 0; l.goesOn(n); n++ {
		if err := l.pay(); err != nil {
			return err
		}
		if l.from += payConns; l.from >= l.accounts {
			l.from %= payConns
		}
	}
	return nil
}

func (l *loader) goesOn(n int) bool {
	if l.until.IsZero() {
		return n < loadPayments
	}
	return time.Now().Before(l.until)
}

// pay makes one payment. At random it also repeats this payment or an earlier one.
func (l *loader) pay() error {
	to, amount := (l.from+1+l.d.IntN(l.accounts-1))%l.accounts, 1+l.d.IntN(1000)
	l.c.out = l.order(l.c.out[:0], l.from, to, amount)
	l.moved[l.from].Add(-int64(amount))
	l.moved[to].Add(int64(amount))
	l.paid.Add(1)
	kind := l.d.IntN(4 * l.every) // half of the repetitions come later
	var err error
	switch kind {
	case 0:
		err = l.atOnce()
	case 1:
		err = l.afterALoss()
	default:
		err = l.ask(l.c)
	}
	if err != nil {
		return err
	}
	l.keep(receipted{bytes.Clone(l.c.out), bytes.Clone(l.c.body)})
	if kind < 4 && kind > 1 {
		return l.later(l.done[l.d.IntN(len(l.done))])
	}
	return nil
}

func (l *loader) keep(r receipted) {
	if len(l.done) < loadKept {
		l.done = append(l.done, r)
		return
	}
	l.done[l.d.IntN(loadKept)] = r
}

// ask sends a request until it is answered and records the latency.
func (l *load) ask(c *caller) error {
	begun := time.Now()
	status, first, err := c.insist()
	if err != nil || status != 200 {
		return fmt.Errorf("%d %s, %w\n%.300s", status, c.body, err, c.out)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum.note(first, time.Since(begun))
	return nil
}

// later repeats a payment whose answer was received earlier.
func (l *loader) later(was receipted) error {
	l.twice[0].Add(1)
	defer l.beside.hangUp()
	l.beside.out = append(l.beside.out[:0], was.request...)
	if err := l.ask(l.beside); err != nil {
		return err
	}
	if !l.beside.replayed || !bytes.Equal(l.beside.body, was.receipt) {
		return fmt.Errorf("a payment was answered\n%s, and again, replayed %t:\n%s", was.receipt, l.beside.replayed,
			l.beside.body)
	}
	return nil
}

// atOnce sends the same payment on two connections concurrently.
func (l *loader) atOnce() error {
	l.twice[1].Add(1)
	defer l.beside.hangUp()
	l.beside.out = append(l.beside.out[:0], l.c.out...)
	other := make(chan error, 1)
	go func() { other <- l.ask(l.beside) }()
	err, beside := l.ask(l.c), <-other
	switch {
	case err != nil:
		return err
	case beside != nil:
		return beside
	case !bytes.Equal(l.c.body, l.beside.body):
		return fmt.Errorf("a payment that came twice at once was answered\n%s\nand\n%s", l.c.body, l.beside.body)
	}
	return nil
}

// afterALoss sends a payment, disconnects without reading the answer, and repeats the payment.
func (l *loader) afterALoss() error {
	l.twice[2].Add(1)
	if err := l.c.send(); err != nil {
		return err
	}
	l.c.hangUp()
	return l.ask(l.c)
}

// tell logs the progress at intervals: rate, latencies, refusals, and the memory of the node.
func (l *load) tell(t *testing.T, stop <-chan struct{}, told chan<- struct{}) {
	defer close(told)
	tick, last := time.NewTicker(loadTold), time.Now()
	defer tick.Stop()
	var all tally
	line := func(what string, sum tally) {
		if slices.Sort(sum.took); len(sum.took) == 0 {
			return
		}
		refused := 0
		for _, n := range sum.again {
			refused += n
		}
		t.Logf("%s: %.0f requests/s, p50 %.1f ms, p99 %.1f ms, %.3f %% refused at first %v; %s", what,
			float64(len(sum.took))/sum.lasted.Seconds(), sum.ms(.5), sum.ms(.99), sum.share(refused), sum.again,
			l.memory())
	}
	for more := true; more; {
		select {
		case <-tick.C:
		case <-stop:
			more = false
		}
		l.mu.Lock()
		sum := l.sum
		l.sum = tally{}
		l.mu.Unlock()
		sum.lasted, last = time.Since(last), time.Now()
		line("lately", sum)
		all = all.and(sum)
	}
	line("in all", all)
}

// memory returns the memory of the node, with and without the mapped pages of its file.
func (l *load) memory() string {
	return fmt.Sprintf("the node has %d MiB, %d of them its own", l.stat("status", "VmRSS:")>>10,
		l.stat("status", "RssAnon:")>>10)
}

func (l *load) head() (head ledgerapi.LedgerHead) {
	l.b.Helper()
	c := &caller{addr: l.addr}
	defer c.hangUp()
	l.read(c, "/v1/ledger/head", &head)
	return head
}

// read sends one GET and decodes the answer.
func (k *bank) read(c *caller, path string, into any) {
	k.b.Helper()
	c.out = k.get(c.out[:0], path)
	status, _, err := c.insist()
	if err == nil {
		err = json.Unmarshal(c.body, into)
	}
	if err != nil || status != 200 {
		k.b.Fatalf("%s: %d %s, %v", path, status, c.body, err)
	}
}

// balanced fails the test unless every account i has the balance want(i).
func (k *bank) balanced(want func(i int) int64) {
	k.b.Helper()
	c := &caller{addr: k.addr}
	defer c.hangUp()
	for i := range k.accounts {
		var has walletapi.Balance
		k.read(c, "/v1/balance?asset=ron&account="+payer(i), &has)
		if want := strconv.FormatInt(want(i), 10); has.PostedMinor != want {
			k.b.Fatalf("%s has %s, want %s", payer(i), has.PostedMinor, want)
		}
	}
}
