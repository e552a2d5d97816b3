package load

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
)

// Sizes of the soak. SOAK_SECONDS sets its duration, in which it makes at most soakMost payments,
// so that a day fits on a disk. In its first quarter the node is killed or stopped repeatedly;
// after that it runs without a restart and its resources are checked. Without SOAK_SECONDS the node
// runs twice for a short time and its resources are not checked. With SOAK_SEED each connection
// repeats the requests of an earlier soak, but the order in which they reach the node may differ.
const (
	soakAccounts = 400
	soakSingles  = 4 // connections that send single payments
	soakPause    = 10 * time.Millisecond
	soakOps      = 100 // operations in a batch
	soakMost     = 5_000_000
	soakRate     = 600 // maximum rate of all connections, in payments per second
	soakLives    = 6
	soakShort    = time.Second
	soakLeast    = 60 // seconds; a quarter of the soak must fit the restarts and fill the memory
	soakKept     = 64
	soakYoung    = 20 * time.Second // maximum age of a repeated payment, because its key counts for a minute
	soakExpires  = 1                // lifetime of a hold, in seconds
	soakSamples  = 400
)

// soak is a node under a mixed load.
type soak struct {
	*bank
	seed  uint64
	node  *soakNode
	slow  time.Duration // factor by which the pauses are longer than usual
	stop  chan struct{}
	moved []atomic.Int64 // by account: received minus paid
	paid  atomic.Int64
	again atomic.Int64
	holds [3]atomic.Int64 // captured, released, expired
	all   sync.WaitGroup
}

// soakPart is one connection of the soak. It pays only from its own accounts.
type soakPart struct {
	*soak
	c        *caller
	d        *rand.Rand
	from, to int // its accounts, half-open range
	at       int
	kept     []soakPaid
	n        int
}

// soakPaid is an answered payment.
type soakPaid struct {
	receipted
	at time.Time
}

// For SOAK_SECONDS, clients send payments of every kind to a node and read balances, statements and
// receipts, while the node is stopped and killed. No payment is lost or made twice. The file
// verifies. The node's memory, goroutines and open files do not grow.
func TestSoak(t *testing.T) {
	t.Parallel()
	lasts, long := soakShort, hosttest.Number(t, "SOAK_SECONDS")
	if long != 0 {
		lasts = time.Duration(long) * time.Second
	}
	if long != 0 && long < soakLeast {
		t.Fatalf("SOAK_SECONDS = %d: must be %d or more", long, soakLeast)
	}
	seed := hosttest.Seed(t, "SOAK_SEED")
	cfg := devConfig(t)
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
	t.Logf("%d payments, %d replays, holds: %d captured, %d released, %d expired", s.paid.Load(), s.again.Load(),
		s.holds[0].Load(), s.holds[1].Load(), s.holds[2].Load())
	if long == 0 {
		return
	}
	for _, fault := range s.grown(samples) {
		t.Error(fault)
	}
}

// newSoak starts a node and funds its accounts.
func newSoak(t *testing.T, dir string) *soak {
	t.Helper()
	token, err := os.ReadFile(soakConfig(t, dir).Path(config.TokenName))
	must(t, err)
	s := &soak{
		bank: &bank{
			b:        t,
			token:    strings.TrimSpace(string(token)),
			accounts: soakAccounts,
			nonces:   make([]atomic.Uint64, soakAccounts),
		},
		node:  &soakNode{t: t, dir: dir},
		stop:  make(chan struct{}),
		moved: make([]atomic.Int64, soakAccounts),
	}
	s.node.start()
	body := []byte(`{"mode":"atomic","ops":[`)
	for i := range soakAccounts {
		body = fmt.Appendf(
			body,
			`{"op":"issue","to":%q,"asset":"ron","amount_minor":"%d","nonce":%d},`,
			payer(i),
			funds,
			i+2,
		)
	}
	c := &caller{}
	defer c.hangUp()
	c.out = s.post(nil, "/v1/batch", "application/json", "fund", append(bytes.TrimSuffix(body, []byte(",")), `]}`...))
	must(t, s.ask(c))
	return s
}

// begin starts the parts. Each has its own accounts.
func (s *soak) begin() {
	parts := []func(*soakPart) error{(*soakPart).batch, (*soakPart).hold, (*soakPart).look}
	for range soakSingles {
		parts = append(parts, (*soakPart).single)
	}
	share := soakAccounts / len(parts)
	for i, do := range parts {
		p := &soakPart{
			soak: s,
			c:    &caller{},
			d:    rand.New(rand.NewPCG(s.seed, uint64(i))),
			from: i * share,
			to:   (i + 1) * share,
			at:   i * share,
		}
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

// pause waits, and reports whether the soak goes on.
func (s *soak) pause(d time.Duration) bool {
	select {
	case <-s.stop:
		return false
	case <-time.After(d * s.slow):
		return true
	}
}

// ask sends a request until it is answered, if need be by a restarted node.
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

// next returns the account that pays next.
func (p *soakPart) next() int {
	if p.at++; p.at >= p.to {
		p.at = p.from
	}
	return p.at
}

// other returns a random account other than from.
func (p *soakPart) other(from int) int { return (from + 1 + p.d.IntN(soakAccounts-1)) % soakAccounts }

func (p *soakPart) move(from, to, amount int) {
	p.moved[from].Add(-int64(amount))
	p.moved[to].Add(int64(amount))
}

// single makes a payment. At random it repeats an earlier payment instead.
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
		return fmt.Errorf("a payment was answered\n%s, and again, replayed %t:\n%s", was.receipt, p.c.replayed,
			p.c.body)
	}
	return nil
}

// batch sends a batch, alternately as JSON and as CBOR.
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

// hold places a hold, then captures it, releases it, or lets it expire.
func (p *soakPart) hold() error {
	if !p.pause(4 * soakPause) {
		return nil
	}
	p.n++
	from := p.next()
	to, amount := p.other(from), 1+p.d.IntN(1000)
	body := fmt.Sprintf(
		`{"from":%q,"to":%q,"asset":"ron","amount_minor":"%d","nonce":%d,"expires_in_s":%d}`,
		payer(from),
		payer(to),
		amount,
		p.nonces[from].Add(1),
		soakExpires,
	)
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
		if err != nil && !strings.Contains(err.Error(), "hold_expired") &&
			!strings.Contains(err.Error(), "hold_closed") {
			return err
		}
		if err != nil { // the node was down meanwhile
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

// look reads a balance, a statement, and a receipt of the statement.
func (p *soakPart) look() error {
	account := payer(p.d.IntN(soakAccounts))
	for _, path := range []string{"/v1/balance?asset=ron&account=" + account,
		"/v1/history?asset=ron&limit=20&order=desc&account=" + account} {
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

// watch samples the node until the soak has run for the given duration.
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
			s.stat("status", "VmRSS:") >> 10,
			s.stat("status", "RssAnon:") >> 10,
			int64(s.node.metric("go_goroutines")),
			int64(len(files)),
			s.stat("status", "Threads:"),
		})
		if now := int(time.Since(from) * 12 / max(lasts-from.Sub(begun), 1)); now > part {
			part = now
			s.b.Logf("after %s: %+v MiB, %d payments", time.Since(begun).Round(time.Second), samples[len(samples)-1],
				s.paid.Load())
		}
	}
	s.b.Logf("%d payments of the last life made the file grow by %d bytes each, to %d MiB", s.paid.Load()-paid,
		(s.size()-size)/max(1, s.paid.Load()-paid), s.size()>>20)
	return samples
}

func (s *soak) size() int64 {
	info, err := os.Stat(filepath.Join(s.node.dir, config.DatabaseName))
	if err != nil {
		s.b.Fatal(err)
	}
	return info.Size()
}

// settle waits until all holds have expired, and expects every account to have the computed
// balance.
func (s *soak) settle() {
	for late := time.Now().Add(patience); s.node.metric("holds_open") > 0; <-time.After(againAfter) {
		if time.Now().After(late) {
			s.b.Fatal("holds do not expire")
		}
	}
	s.bank.addr = *s.node.addr.Load()
	s.balanced(func(i int) int64 { return funds + s.moved[i].Load() })
}

// soakSample holds the resources of the node at one time.
type soakSample struct {
	rss, anon, goroutines, files, threads int64
}

// grown returns a message for each resource that has grown between the second and the last quarter
// of the soak, which are the first and the last third of the run without a restart.
func (s *soak) grown(samples []soakSample) (faults []string) {
	third := len(samples) / 3
	for _, of := range []struct {
		name  string
		get   func(soakSample) int64
		share int64 // allowed growth, in percent of the earlier value
		most  int64 // allowed growth beyond that, in the resource's unit
	}{
		// The collector lets garbage grow to the size of live memory, and returns it late.
		{"MiB of its own memory", func(s soakSample) int64 { return s.anon }, 20, 16},
		// Each of the seven connections and the scrape have two goroutines.
		{"goroutines", func(s soakSample) int64 { return s.goroutines }, 0, 10},
		// A scrape and a new connection have one file each.
		{"open files", func(s soakSample) int64 { return s.files }, 0, 4},
		// Go keeps threads that waited for a slow disk.
		{"threads", func(s soakSample) int64 { return s.threads }, 20, 4},
	} {
		early, late := middle(samples[:third], of.get), middle(samples[len(samples)-third:], of.get)
		s.b.Logf("%s: %d, later %d", of.name, early, late)
		if late > early+early*of.share/100+of.most {
			faults = append(faults, fmt.Sprintf("the node had %d %s, and later %d", early, of.name, late))
		}
	}
	return faults
}

func middle(samples []soakSample, get func(soakSample) int64) int64 {
	sorted := slices.SortedFunc(
		slices.Values(samples),
		func(a, b soakSample) int { return cmp.Compare(get(a), get(b)) },
	)
	return get(sorted[len(sorted)/2])
}

// grown reports growth, but not fluctuation.
func TestSoakTells(t *testing.T) {
	s := &soak{bank: &bank{b: t}}
	var steady, leaks []soakSample
	for i := range int64(90) {
		steady = append(steady, soakSample{anon: 60 + 20*(i%3), goroutines: 60 + i%7, files: 19, threads: 9})
		leaks = append(leaks, soakSample{anon: 60 + i, goroutines: 60 + i/3, files: 19 + i/6, threads: 9 + i/6})
	}
	if faults := s.grown(steady); len(faults) > 0 {
		t.Errorf("steady: %q", faults)
	}
	if faults := s.grown(leaks); len(faults) != 4 {
		t.Errorf("leaks: %q", faults)
	}
}

// soakDir is the environment variable with the directory of the node that a helper runs.
const soakDir = "RONBOX_TEST_SOAK"

// soakConfig returns the configuration of a node whose memory is full after a minute or two: keys
// count for a minute, and a few of them fill a slot.
func soakConfig(t *testing.T, dir string) *config.Config {
	t.Helper()
	cfg := config.Default()
	cfg.Node.DataDir = dir
	cfg = loaded(t, cfg)
	cfg.Log.Level = "error" // the helper keeps every line
	cfg.Store.MaxBytes = 64 << 30
	cfg.Ledger.SlotWidth, cfg.Ledger.SlotMax = unit.Duration(time.Minute), 8192
	cfg.Wallet.IdempotencyTTL = unit.Duration(time.Minute)
	cfg.Wallet.Limits.RatePerSecond, cfg.Wallet.Limits.Burst = 1_000_000, 1_000_000
	must(t, config.Validate(cfg))
	return cfg
}

// TestSoakNode is the body of the helper. It runs the node until its input ends.
func TestSoakNode(t *testing.T) {
	dir := os.Getenv(soakDir)
	if dir == "" {
		return
	}
	n := serve(t, soakConfig(t, dir))
	fmt.Println(n.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	n.halt()
}

// soakNode is the process of the node over all its restarts. One goroutine starts and ends it.
type soakNode struct {
	t    *testing.T
	dir  string
	addr atomic.Pointer[string] // of the current process
	cmd  *exec.Cmd
	in   io.Closer
	out  *bufio.Reader
}

func (n *soakNode) start() {
	n.t.Helper()
	n.cmd = exec.Command(os.Args[0], "-test.run=^TestSoakNode$", "-test.timeout=0")
	n.cmd.Env = append(os.Environ(), soakDir+"="+n.dir)
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := n.cmd.StdinPipe()
	must(n.t, err)
	out, err := n.cmd.StdoutPipe()
	must(n.t, err)
	must(n.t, n.cmd.Start())
	n.in, n.out = in, bufio.NewReader(out)
	line, err := n.out.ReadString('\n')
	if err != nil || !strings.Contains(line, ":") {
		rest, _ := io.ReadAll(n.out)
		n.t.Fatalf("the node says %q, %v\n%s", line, err, rest)
	}
	line = strings.TrimSpace(line)
	n.addr.Store(&line)
}

// end stops the node, or kills it.
func (n *soakNode) end(kill bool) {
	n.t.Helper()
	if kill {
		_ = n.cmd.Process.Kill()
	}
	_ = n.in.Close()
	rest, _ := io.ReadAll(n.out)
	if err := n.cmd.Wait(); err != nil && !kill {
		n.t.Fatalf("the node ended with %v\n%s", err, rest)
	}
}

// metric returns the value of a series of the node that has no labels or only the label service.
func (n *soakNode) metric(name string) (sum float64) {
	n.t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(n.t.Context(), "GET", "http://"+*n.addr.Load()+"/metrics", nil)
	must(n.t, err)
	resp, err := tr.RoundTrip(req)
	must(n.t, err)
	defer func() { _ = resp.Body.Close() }()
	found := false
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		series, value, _ := strings.Cut(in.Text(), " ")
		if family, _, _ := strings.Cut(series, "{"); family == name {
			var one float64
			_, err := fmt.Sscan(value, &one)
			must(n.t, err)
			sum, found = sum+one, true
		}
	}
	if !found {
		n.t.Fatalf("no %s: %s", name, resp.Status)
	}
	return sum
}
