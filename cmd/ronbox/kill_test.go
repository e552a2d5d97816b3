package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/ledger/idem"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	registryapi "ronbox/httpapi/wire/registry"
	"ronbox/store"
)

const (
	killsPerBox = 25 // kills per file: checking the whole log gets slower with every version
	checkEvery  = 5
)

// TestKill9 kills the node at random points while it applies the eight states. HEAD never precedes
// an acknowledged version, the log is never torn, and a stream that resumes after its last event
// gets exactly the events that follow.
func TestKill9(t *testing.T) {
	skipRaceOnly(t)
	tellSeed(t)
	for done := 0; done < *kills; done += killsPerBox {
		cycles := min(killsPerBox, *kills-done)
		t.Run(fmt.Sprintf("%d-%d", done+1, done+cycles), func(t *testing.T) {
			t.Parallel() // each subtest mostly waits for its own node
			t.Logf("%d kills, %d versions acknowledged", cycles, killBox(t, cycles))
		})
	}
}

// acks collects the versions that apply acknowledged.
type acks struct {
	mu   sync.Mutex
	last uint64
	b3   map[uint64]string
}

func (a *acks) add(d appliedStates) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = max(a.last, d.Version)
	a.b3[d.Version] = d.PayloadB3
}

func (a *acks) head() (uint64, string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last, a.b3[a.last]
}

// killBox kills one node the given number of times and returns the last acknowledged version.
func killBox(t *testing.T, cycles int) uint64 {
	t.Helper()
	b, d := newDiskBox(t), draws(t, "kills")
	ctx, cancel := context.WithCancel(t.Context())
	acked := &acks{b3: map[uint64]string{}}
	var wg sync.WaitGroup
	p := b.start(t)
	wg.Go(func() { b.applyForEver(t, ctx, acked) })
	follower := uint64(1)
	for i := range cycles {
		time.AfterFunc(drawTime(d, 300*time.Millisecond), func() { _ = p.cmd.Process.Signal(syscall.SIGKILL) })
		<-p.done
		last, b3 := acked.head()
		if i%checkEvery == checkEvery-1 || i == cycles-1 {
			b.checkLog(t)
		}
		p = b.start(t)
		c := b.client(t)
		head, err := c.Head(ctx)
		if err != nil || head.Version < last {
			t.Fatalf("cycle %d: HEAD is %d (%v), %d was acknowledged", i, head.Version, err, last)
		}
		if last > 1 {
			if v, err := c.Version(ctx, last, false); err != nil || v.PayloadB3.String() != b3 {
				t.Fatalf("cycle %d: version %d is %s (%v), %s was acknowledged", i, last, v.PayloadB3, err, b3)
			}
		}
		follower = follow(t, ctx, c, follower, head.Version)
		c.Close()
	}
	until(t, "something is acknowledged", func() bool { // at the latest in the last life, however slow the machine is
		last, _ := acked.head()
		return last > 1
	})
	cancel()
	wg.Wait()
	if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Errorf("the last life ended with %d\n%s", code, p.stderr)
	}
	b.checkLog(t)
	last, _ := acked.head()
	return last
}

// An apply may take between minPatience and maxPatience. With minPatience, some applies only wait
// for the node to come back and some are killed halfway. maxPatience suffices on the slowest
// machine.
const minPatience, maxPatience = 400 * time.Millisecond, time.Minute

// applyForEver applies the eight states repeatedly, through every crash of the node and of the
// applying process.
func (b *box) applyForEver(t *testing.T, ctx context.Context, acked *acks) {
	files, patience := states(t), minPatience
	for i := 0; ctx.Err() == nil; {
		d, code := b.applyOnce(t, ctx, patience, files[i%len(files)])
		switch code {
		case cli.ExitDone:
			acked.add(d)
			patience = minPatience
			i++
		case -1: // killed
			patience = min(2*patience, maxPatience)
		case cli.ExitUnreachable, cli.ExitBusy:
		default:
			t.Errorf("apply ended with %d", code)
		}
	}
}

func (b *box) applyOnce(
	t *testing.T,
	ctx context.Context,
	patience time.Duration,
	file string,
) (d appliedStates, code int) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	cmd := exec.CommandContext(ctx, binary, b.args("registry", "apply", file, "--key", b.key, "--json")...)
	out, err := cmd.Output()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return d, ended.ExitCode()
	}
	if err == nil {
		err = json.Unmarshal(out, &d)
	}
	if err == nil {
		return d, cli.ExitDone
	}
	if ctx.Err() == nil {
		t.Errorf("apply printed %q: %v", out, err)
	}
	return d, -1
}

// follow reads the stream after version from until it receives version to. It returns the last
// version that it received.
func follow(t *testing.T, ctx context.Context, c *apiClient, from, to uint64) uint64 {
	t.Helper()
	if from >= to {
		return from
	}
	err := c.Stream(
		ctx,
		client.StreamOptions{LastEventID: strconv.FormatUint(from, 10), Tries: 3},
		func(e client.Event) error {
			if e.Name == wire.EventLagged {
				t.Errorf("lagged after version %d: %s", from, e.Data)
			}
			if e.Name != registryapi.EventUpdate {
				return nil
			}
			if want := strconv.FormatUint(from+1, 10); e.ID != want {
				t.Errorf("the stream went from version %d to %s", from, e.ID)
			}
			if from++; from >= to {
				return client.ErrStop
			}
			return nil
		},
	)
	if err != nil {
		t.Errorf("stream after version %d: %v", from, err)
	}
	return from
}

// TestKill9Seal kills the node while it seals slots of the idempotency index and payments continue.
// A repeated payment gets the same bytes as before, and the ledger is sound. A slot holds only
// eight keys here, so that payments close a slot with almost every batch and each turn of the
// sealer has many slots to seal. With a thousand kills or more a key expires after a minute, so
// that the node is also killed while it drops runs.
func TestKill9Seal(t *testing.T) {
	skipRaceOnly(t)
	tellSeed(t)
	t.Parallel() // the sealer looks once a second
	b, d := newDiskBox(t), draws(t, "kills")
	halves, ttl := 0, "1h"
	if *kills >= 1000 {
		ttl = "1m"
	}
	b.env = append(b.env, "RONBOX_LEDGER__SLOT_MAX=8", "RONBOX_WALLET__IDEMPOTENCY_TTL="+ttl,
		"RONBOX_LEDGER__SLOT_WIDTH=1m")
	b.killPayers(t, killCycles(2, 4, 10), func(p *process, _ int) {
		b.killSealing(t, d, p)
		halves += b.halfRuns(t)
		b.checkLedger(t)
	})
	t.Logf("%d runs were left without an end", halves)
}

// killSealing kills the node a moment after it sealed or dropped a slot.
func (b *box) killSealing(t *testing.T, d *rand.Rand, p *process) {
	t.Helper()
	c := b.client(t)
	defer c.Close()
	before := sealedKeys(t, c)
	until(t, "slots are sealed", func() bool { return sealedKeys(t, c) != before })
	time.AfterFunc(drawTime(d, 20*time.Millisecond), func() { _ = p.cmd.Process.Signal(syscall.SIGKILL) })
	<-p.done
}

// sealedKeys returns the number of keys that a node has in sealed slots.
func sealedKeys(t *testing.T, c *apiClient) (keys int) {
	t.Helper()
	raw, err := c.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if series, value, _ := strings.Cut(line, " "); strings.HasPrefix(series, "idem_entries{") &&
			strings.Contains(series, `"sealed"`) {
			_, _ = fmt.Sscan(value, &keys)
			return keys
		}
	}
	t.Fatal("no count of sealed keys")
	return 0
}

// halfRuns returns the number of sealed slots without an end record, in the file of a stopped node.
func (b *box) halfRuns(t *testing.T) int {
	t.Helper()
	f, err := store.OpenReader(filepath.Join(b.dir, "ronbox.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	l := idem.New(1, idem.Cut{}).Loader()
	if err := f.View(t.Context(), func(r store.Reader) error {
		for !l.Step(r) {
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return len(l.Half())
}
