package appliance

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Sizes of the soak. SOAK_SECONDS makes it last so long, at most soakMost payments of it, so that a day fits on a disk; in its first quarter
// the node is killed or stopped now and then, and after that it has one life, whose memory is looked at. Without it there are two short
// lives, and what they used is not judged. SOAK_SEED has each connection draw what it drew before, in whatever order they come to the node.
const (
	soakAccounts = 400
	soakSingles  = 4 // connections that pay one by one
	soakPause    = 10 * time.Millisecond
	soakOps      = 100 // of a batch
	soakMost     = 5_000_000
	soakRate     = 600 // payments a second of all connections, at the most
	soakLives    = 6
	soakShort    = time.Second
	soakLeast    = 60 // seconds: a quarter must have room for the lives, and for memory to fill
	soakKept     = 64
	soakYoung    = 20 * time.Second // a payment that is sent again is at most so old: its key counts for a minute
	soakExpires  = 1                // seconds of a hold
	soakSamples  = 400
)

// soak is a node under a mixed load.
type soak struct {
	*bank
	seed  uint64
	node  *soakNode
	slow  time.Duration // how much longer than usual the pauses are, in usual ones
	stop  chan struct{}
	moved []atomic.Int64 // by account: received less paid
	paid  atomic.Int64
	again atomic.Int64
	holds [3]atomic.Int64 // captured, released, left to expire
	all   sync.WaitGroup
}

// soakPart is what one connection does until the soak ends. Accounts are its own: no two parts pay from one.
type soakPart struct {
	*soak
	c        *caller
	d        *rand.Rand
	from, to int // its accounts, the last one not included
	at       int
	kept     []soakPaid
	n        int
}

// soakPaid is a payment that was answered.
type soakPaid struct {
	receipted
	at time.Time
}

// For as long as SOAK_SECONDS says, a node is paid through in every way, and asked for balances, statements and receipts; it is stopped and
// killed. No payment is lost or made twice, its file is sound, and what it has of memory, goroutines and open files does not grow.
func TestSoak(t *testing.T) {
	lasts, long := soakShort, loadFromEnv(t, "SOAK_SECONDS")
	if long != 0 {
		lasts = time.Duration(long) * time.Second
	}
	if long != 0 && long < soakLeast {
		t.Fatalf("SOAK_SECONDS = %d: must be %d or more", long, soakLeast)
	}
	seed := seedFrom(t, "SOAK_SEED")
	cfg, _ := devConfig(t)
	s := newSoak(t, cfg.Node.DataDir)
	s.seed = seed
	s.slow = time.Duration(max(1, soakRate*int64(long)/soakMost))
	s.begin()
	begun := time.Now()
	lives := soakLives
	if long == 0 {
		lives = 1
	}
	for i := range lives {
		<-time.After(lasts / 4 / time.Duration(lives))
		s.node.end(i%2 == 0)
		s.node.start()
	}
	samples := s.watch(begun, lasts)
	close(s.stop)
	s.all.Wait()
	s.settle()
	s.node.end(false)
	verified(t, soakConfig(t, cfg.Node.DataDir))
	t.Logf("%d payments, %d replays, holds: %d captured, %d released, %d expired", s.paid.Load(), s.again.Load(), s.holds[0].Load(), s.holds[1].Load(), s.holds[2].Load())
	if long == 0 {
		return
	}
	for _, fault := range s.grown(samples) {
		t.Error(fault)
	}
}

// newSoak starts a node and gives its accounts money.
func newSoak(t *testing.T, dir string) *soak {
	t.Helper()
	token, err := os.ReadFile(soakConfig(t, dir).Path(TokenName))
	must(t, err)
	s := &soak{
		bank:  &bank{b: t, token: strings.TrimSpace(string(token)), accounts: soakAccounts, nonces: make([]atomic.Uint64, soakAccounts)},
		node:  &soakNode{t: t, dir: dir},
		stop:  make(chan struct{}),
		moved: make([]atomic.Int64, soakAccounts),
	}
	s.node.start()
	body := []byte(`{"mode":"atomic","ops":[`)
	for i := range soakAccounts {
		body = fmt.Appendf(body, `{"op":"issue","to":%q,"asset":"ron","amount_minor":"%d","nonce":%d},`, payer(i), funds, i+2)
	}
	c := &caller{}
	defer c.hangUp()
	c.out = s.post(nil, "/v1/batch", "application/json", "fund", append(bytes.TrimSuffix(body, []byte(",")), `]}`...))
	must(t, s.ask(c))
	return s
}

// begin runs the parts: each has accounts of its own.
func (s *soak) begin() {
	parts := []func(*soakPart) error{(*soakPart).batch, (*soakPart).hold, (*soakPart).look}
	for range soakSingles {
		parts = append(parts, (*soakPart).single)
	}
	share := soakAccounts / len(parts)
	for i, do := range parts {
		p := &soakPart{soak: s, c: &caller{}, d: rand.New(rand.NewPCG(s.seed, uint64(i))), from: i * share, to: (i + 1) * share, at: i * share}
		s.all.Go(func() {
			defer p.c.hangUp()
			for s.pause(soakPause) {
				if err := do(p); err != nil {
					s.b.Error(err)
					return
				}
			}
		})
	}
}

// pause waits, and tells whether the soak goes on.
func (s *soak) pause(d time.Duration) bool {
	select {
	case <-s.stop:
		return false
	case <-time.After(d * s.slow):
		return true
	}
}

// ask has a request answered, by the next life of the node if need be.
func (s *soak) ask(c *caller) error {
	for begun := time.Now(); ; <-time.After(againAfter) {
		c.addr = *s.node.addr.Load()
		status, _, err := c.insist()
		if err == nil && (status < 300 || !bytes.Contains(c.body, []byte(`"retryable":true`))) {
			if status != 200 {
				return fmt.Errorf("%d %s\n%.300s", status, c.body, c.out)
			}
			return nil
		}
		c.hangUp()
		if time.Since(begun) > 3*patience {
			return fmt.Errorf("%d %s, %w\n%.300s", status, c.body, err, c.out)
		}
	}
}

// next is the account that pays next.
func (p *soakPart) next() int {
	if p.at++; p.at >= p.to {
		p.at = p.from
	}
	return p.at
}

// other is any account but one.
func (p *soakPart) other(from int) int { return (from + 1 + p.d.IntN(soakAccounts-1)) % soakAccounts }

func (p *soakPart) move(from, to, amount int) {
	p.moved[from].Add(-int64(amount))
	p.moved[to].Add(int64(amount))
}

// single makes a payment, and now and then one more time one that was made.
func (p *soakPart) single() error {
	from := p.next()
	to, amount := p.other(from), 1+p.d.IntN(1000)
	p.c.out = p.order(p.c.out[:0], from, to, amount)
	if err := p.ask(p.c); err != nil {
		return err
	}
	p.move(from, to, amount)
	p.paid.Add(1)
	one := soakPaid{receipted{bytes.Clone(p.c.out), bytes.Clone(p.c.body)}, time.Now()}
	if len(p.kept) < soakKept {
		p.kept = append(p.kept, one)
	} else {
		p.kept[p.d.IntN(soakKept)] = one
	}
	was := p.kept[p.d.IntN(len(p.kept))]
	if p.d.IntN(10) > 0 || time.Since(was.at) > soakYoung {
		return nil
	}
	p.again.Add(1)
	p.c.out = append(p.c.out[:0], was.request...)
	if err := p.ask(p.c); err != nil {
		return err
	}
	if !p.c.replayed || !bytes.Equal(p.c.body, was.receipt) {
		return fmt.Errorf("a payment was answered\n%s, and again, replayed %t:\n%s", was.receipt, p.c.replayed, p.c.body)
	}
	return nil
}

// batch pays many at once, as JSON and as CBOR in turn.
func (p *soakPart) batch() error {
	if !p.pause(50 * soakPause) {
		return nil
	}
	ops, write := make([]wireOp, soakOps), jsonBatch
	if p.n++; p.n%2 == 0 {
		write = cborBatch
	}
	for i := range ops {
		from := p.next()
		ops[i] = wireOp{from, p.other(from), p.nonces[from].Add(1)}
	}
	media, body := write(nil, ops)
	p.c.out = p.post(p.c.out[:0], "/v1/batch", media, fmt.Sprintf("b%d", p.n), body)
	if err := p.ask(p.c); err != nil {
		return err
	}
	for _, o := range ops {
		p.move(o.from, o.to, 1)
	}
	p.paid.Add(soakOps)
	return nil
}

// hold sets money aside, and captures it, releases it, or lets it be.
func (p *soakPart) hold() error {
	if !p.pause(4 * soakPause) {
		return nil
	}
	p.n++
	from := p.next()
	to, amount := p.other(from), 1+p.d.IntN(1000)
	body := fmt.Sprintf(`{"from":%q,"to":%q,"asset":"ron","amount_minor":"%d","nonce":%d,"expires_in_s":%d}`, payer(from), payer(to), amount, p.nonces[from].Add(1), soakExpires)
	p.c.out = p.post(p.c.out[:0], "/v1/hold", "application/json", fmt.Sprintf("h%d", p.n), []byte(body))
	if err := p.ask(p.c); err != nil {
		return err
	}
	p.paid.Add(1)
	how := p.d.IntN(3)
	if how < 2 {
		verb := []string{"capture", "release"}[how]
		body := fmt.Sprintf(`{"hold":%q}`, txidOf(p.c.body))
		p.c.out = p.post(p.c.out[:0], "/v1/"+verb, "application/json", fmt.Sprintf("%s%d", verb, p.n), []byte(body))
		err := p.ask(p.c)
		if err != nil && !strings.Contains(err.Error(), "HOLD_EXPIRED") && !strings.Contains(err.Error(), "HOLD_CLOSED") {
			return err
		}
		if err != nil { // the node was away for so long
			how = 2
		}
	}
	if how == 0 {
		p.move(from, to, amount)
	}
	p.holds[how].Add(1)
	return nil
}

func txidOf(receipt []byte) string {
	_, id, _ := bytes.Cut(receipt, []byte(`"txid":"`))
	id, _, _ = bytes.Cut(id, []byte(`"`))
	return string(id)
}

// look asks for a balance, a statement, and a receipt out of it.
func (p *soakPart) look() error {
	account := payer(p.d.IntN(soakAccounts))
	for _, path := range []string{"/v1/balance?asset=ron&account=" + account, "/v1/history?asset=ron&limit=20&order=desc&account=" + account} {
		p.c.out = p.get(p.c.out[:0], path)
		if err := p.ask(p.c); err != nil {
			return err
		}
	}
	if id := txidOf(p.c.body); id != "" {
		p.c.out = p.get(p.c.out[:0], "/v1/tx/"+id)
		return p.ask(p.c)
	}
	return nil
}

// watch samples the node until the soak has lasted so long.
func (s *soak) watch(begun time.Time, lasts time.Duration) (samples []soakSample) {
	s.proc = "/proc/" + strconv.Itoa(s.node.cmd.Process.Pid)
	from, size, paid := time.Now(), s.size(), s.paid.Load()
	tick := time.NewTicker(max(lasts/soakSamples, 100*time.Millisecond))
	defer tick.Stop()
	for part := 0; time.Since(begun) < lasts && !s.b.Failed(); {
		<-tick.C
		files, err := os.ReadDir(s.proc + "/fd")
		if err != nil {
			s.b.Fatal(err)
		}
		samples = append(samples, soakSample{
			s.stat("status", "VmRSS:") >> 10, s.stat("status", "RssAnon:") >> 10, int64(s.node.metric("go_goroutines")), int64(len(files)), s.stat("status", "Threads:"),
		})
		if now := int(time.Since(from) * 12 / max(lasts-from.Sub(begun), 1)); now > part {
			part = now
			s.b.Logf("after %s: %+v MiB, %d payments", time.Since(begun).Round(time.Second), samples[len(samples)-1], s.paid.Load())
		}
	}
	s.b.Logf("%d payments of the last life made the file grow by %d bytes each, to %d MiB", s.paid.Load()-paid, (s.size()-size)/max(1, s.paid.Load()-paid), s.size()>>20)
	return samples
}

func (s *soak) size() int64 {
	info, err := os.Stat(filepath.Join(s.node.dir, DatabaseName))
	if err != nil {
		s.b.Fatal(err)
	}
	return info.Size()
}

// settle waits for the holds to expire, and wants every account to have what it should.
func (s *soak) settle() {
	for late := time.Now().Add(patience); s.node.metric("holds_open") > 0; <-time.After(againAfter) {
		if time.Now().After(late) {
			s.b.Fatal("holds do not expire")
		}
	}
	s.bank.addr = *s.node.addr.Load()
	s.balanced(func(i int) int64 { return funds + s.moved[i].Load() })
}
