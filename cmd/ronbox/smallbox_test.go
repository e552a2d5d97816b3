package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/cli"
	walletapi "ronbox/httpapi/wire/wallet"
)

var smallBox = flag.Bool("smallbox", false, "run the test of a small box too, which takes a minute")

// The load and the bounds of the small box.
const (
	smallPayments = 60
	smallPause    = 500 * time.Millisecond
	smallRead     = 50 * time.Millisecond // p99
	smallMemory   = 512 << 10             // KiB, of the peak
	smallSync     = 300 * time.Millisecond
)

// A whole node with its defaults runs on a small box: one CPU, 512 MiB, an SD card that takes 300 ms
// for a sync, and a file of at most 1 GiB. Each of two payments a second is made at the first try,
// reads stay quick, and a snapshot, a stop and another boot succeed.
func TestSmallBox(t *testing.T) {
	if !*smallBox {
		t.Skip("`make long` runs this")
	}
	b := newDiskBox(t)
	b.env = slices.DeleteFunc(b.env, func(v string) bool { return slices.Contains(patient, v) })
	b.env = append(b.env, "GOMAXPROCS=1", "RONBOX_STORE__MAX_BYTES=1GiB")
	slower := max(0, smallSync-b.syncTime(t))
	p := b.startSmall(t, slower)
	b.paysAndReads(t)
	if peak := p.peak(t); peak > smallMemory {
		t.Errorf("the node took %d KiB of memory", peak)
	}
	var snap struct {
		File string `json:"file"`
	}
	must(t, &snap, b.args("db", "snapshot", t.TempDir(), "--json")...)
	must(t, nil, "ledger", "verify", snap.File)
	p.stop(t)

	p = b.startSmall(t, slower)
	got, err := b.client(t).Balance(t.Context(), "bob", "ron", 0)
	if err != nil || got.AmountMinor != strconv.Itoa(smallPayments) {
		t.Errorf("after another boot bob has %s, %v", got.AmountMinor, err)
	}
	p.stop(t)
	must(t, nil, b.args("ledger", "verify")...)
}

// smallNode is a node under strace, which slows its syncs.
type smallNode struct {
	*process
	pid int // of the node
}

// syncTime returns the median time that a sync takes on the disk of the node.
func (b *box) syncTime(t *testing.T) time.Duration {
	t.Helper()
	unix.Sync() // what other tests have left to write
	f, err := os.Create(filepath.Join(filepath.Dir(b.dir), "sync"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	took := make([]time.Duration, 11)
	for i := range took {
		began := time.Now()
		if _, err := f.WriteAt(make([]byte, 4096), int64(i)*4096); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	t.Logf("a sync takes %s to %s", took[0], took[len(took)-1])
	return took[len(took)/2]
}

// startSmall starts the node, whose syncs take longer by a time, and waits until it accepts payments.
func (b *box) startSmall(t *testing.T, slower time.Duration) smallNode {
	t.Helper()
	strace, taskset := hosttest.Tool(t, "strace", "strace"), hosttest.Tool(t, "taskset", "util-linux")
	p := b.prepare()
	inject := fmt.Sprintf("inject=fdatasync,fsync:delay_enter=%d", slower.Microseconds())
	p.cmd.Args = append([]string{
		taskset, "-c", "0", strace, "-f", "-qq", "--seccomp-bpf", "-o", os.DevNull, "-e", "signal=none",
		"-e", "trace=fdatasync,fsync", "-e", inject, "--",
	}, p.cmd.Args...)
	p.cmd.Path = taskset
	b.run(t, p)
	t.Cleanup(func() { ronboxIn(t, context.Background(), "", b.args("drain")...) }) // strace does not forward signals
	began := time.Now()
	b.awaitPlane(t, p, "write")
	t.Logf("boot took %s", time.Since(began).Round(time.Millisecond))
	tracer := p.cmd.Process.Pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", tracer))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		t.Fatalf("strace has the children %q", children)
	}
	return smallNode{p, pid}
}

// peak returns the most memory that the node has had, in KiB.
func (n smallNode) peak(t *testing.T) (kib int) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(n.pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), "VmHWM:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// stop sends SIGTERM to the node, which ends in good order.
func (n smallNode) stop(t *testing.T) {
	t.Helper()
	began := time.Now()
	if err := syscall.Kill(n.pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	n.await(t, "SIGTERM")
	if n.code() != cli.ExitDone {
		t.Errorf("the node ended with %d\n%s", n.code(), n.stderr)
	}
	t.Logf("stop took %s", time.Since(began).Round(time.Millisecond))
}

// paysAndReads makes the payments at their pace, whether or not earlier ones are answered, and reads
// a balance meanwhile.
func (b *box) paysAndReads(t *testing.T) {
	t.Helper()
	done, paid, reads := make(chan struct{}), sync.WaitGroup{}, sync.WaitGroup{}
	var took []time.Duration // owned by the reader
	reads.Go(func() {
		c := b.client(t)
		for every := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-done:
				every.Stop()
				return
			case <-every.C:
			}
			began := time.Now()
			if _, err := c.Balance(t.Context(), "alice", "ron", 0); err != nil {
				t.Errorf("a read: %v", err)
			}
			took = append(took, time.Since(began))
		}
	})
	c := b.client(t)
	waits := make([]time.Duration, smallPayments)
	pace := time.NewTicker(smallPause)
	defer pace.Stop()
	for i := range smallPayments {
		paid.Go(func() {
			began := time.Now()
			body := walletapi.Transfer{From: "alice", To: "bob", Asset: "ron", AmountMinor: "1"}
			if _, err := c.Transfer(t.Context(), fmt.Sprint("small-", i), body); err != nil {
				t.Errorf("payment %d: %v", i, err)
			}
			waits[i] = time.Since(began)
		})
		<-pace.C
	}
	paid.Wait()
	close(done)
	reads.Wait()
	slices.Sort(took)
	slices.Sort(waits)
	p99 := took[len(took)*99/100]
	t.Logf("payments: median %s, longest %s; %d reads: p99 %s", waits[len(waits)/2], waits[len(waits)-1], len(took), p99)
	if p99 > smallRead {
		t.Errorf("p99 of reads is %s, want %s at most", p99, smallRead)
	}
}
