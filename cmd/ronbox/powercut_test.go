package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/ledger/lverify"
	walletapi "ronbox/httpapi/wire/wallet"
)

// Parameters of the simulated power cuts.
const (
	cutPayers   = 4
	cutPayments = 8 // per payer
	cutImages   = 60
	cutSector   = 512 // bytes that a disk writes atomically
)

// A power cut at any moment keeps all synced writes and any subset of the unsynced sectors. The
// ledger in the resulting file is sound and has every payment that was answered before the cut. The
// order of writes, syncs and answers comes from a trace of strace.
func TestPowerCut(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	tellSeed(t)
	b := newDiskBox(t)
	first := b.start(t)
	for i := range cutPayers {
		must(t, nil, b.args("wallet", "issue", fmt.Sprint("payer", i), "1000", "-q")...)
	}
	must(t, nil, b.args("drain")...)
	<-first.done
	db := filepath.Join(b.dir, "ronbox.db")
	whole, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	events := readTrace(t, b.traced(t))
	answers := 0
	for _, e := range events {
		if e.answered != 0 {
			answers++
		}
	}
	if answers < cutPayers*cutPayments {
		t.Fatalf("the trace shows %d answers of %d", answers, cutPayers*cutPayments)
	}
	d := draws(t, "cuts")
	path := filepath.Join(t.TempDir(), "ronbox.db")
	for range cutImages {
		at := events[d.IntN(len(events))].began
		image, answered := cutAt(d, whole, events, at)
		if err := os.WriteFile(path, image, 0o600); err != nil {
			t.Fatal(err)
		}
		r := ronbox(t, "ledger", "verify", path, "--json")
		var doc lverify.Report
		if decode(t, r.stdout, &doc); r.code != cli.ExitDone || !doc.OK || doc.Head.Seq < answered {
			t.Fatalf("cut after line %d, record %d was answered: exit %d, %+v\n%s", at, answered, r.code, doc, r.stderr)
		}
	}
}

// traced runs payments on a node under strace and returns the file of the trace.
func (b *box) traced(t *testing.T) string {
	t.Helper()
	strace := hosttest.Tool(t, "strace", "strace")
	b.env = append(b.env, "RONBOX_LEDGER__FLUSH_EVERY=5ms")
	trace := filepath.Join(t.TempDir(), "trace")
	p := b.prepare()
	calls := "trace=pwrite64,pwritev,pwritev2,fdatasync,fsync,ftruncate,fallocate,write,writev"
	p.cmd.Args = append(
		[]string{
			strace,
			"-f",
			"-qq",
			"-y",
			"-xx",
			"-s",
			"1048576",
			"-e",
			calls,
			"-e",
			"signal=none",
			"-o",
			trace,
			"--",
		},
		p.cmd.Args...)
	p.cmd.Path = strace
	b.run(t, p)
	stop := func() { ronboxIn(t, context.Background(), "", b.args("drain")...) } // strace does not forward signals to the node
	t.Cleanup(stop)
	b.awaitReady(t, p)
	var all sync.WaitGroup
	for i := range cutPayers {
		c := b.client(t)
		all.Go(func() {
			for n := range cutPayments {
				body := walletapi.Transfer{
					From:        fmt.Sprint("payer", i),
					To:          "shop",
					Asset:       "ron",
					AmountMinor: "1",
					Nonce:       uint64(n + 1),
				}
				// strace makes a slow disk slower
				if _, err := (paid{key: fmt.Sprint("cut-", i, "-", n), body: body}).again(t, c); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	stop()
	<-p.done
	return trace
}

// traceEvent is one event of a traced node: a write to its file, a change of its length, a sync, or
// an answered payment.
type traceEvent struct {
	began, ended int // lines of the trace
	data         []byte
	at           int64
	size         int64
	sync         bool
	answered     uint64 // sequence number of the record
}

var traceSeq = regexp.MustCompile(`^HTTP/1\.1 200(?s:.*)"txid":.*"seq":(\d+)`)

// readTrace reads the events of a trace in the order in which they ended.
func readTrace(t *testing.T, file string) (out []traceEvent) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for c, err := range hosttest.Calls(f) {
		e := traceEvent{began: c.Began, ended: c.Ended}
		_, path := c.FD()
		ours := strings.HasSuffix(path, "/ronbox.db")
		switch {
		case err != nil, c.Failed():
		case c.Name == "write" && !ours:
			text, _ := c.Data() // an answer is not cut off
			if seq := traceSeq.FindSubmatch(text); seq != nil {
				e.answered, err = strconv.ParseUint(string(seq[1]), 10, 64)
				out = append(out, e)
			}
		case !ours || c.Name == "fallocate":
		case c.Name == "pwrite64":
			if e.data, err = c.Data(); err == nil {
				e.at, err = c.LastNumber()
			}
			out = append(out, e)
		case c.Name == "ftruncate":
			e.size, err = c.LastNumber()
			out = append(out, e)
		case c.Name == "fdatasync", c.Name == "fsync":
			e.sync = true
			out = append(out, e)
		default:
			t.Fatalf("a call that is not known here: %s", c.Name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// cutAt returns the file as a disk holds it after a power cut at a line of the trace, and the last
// record that was answered before the cut.
func cutAt(d *rand.Rand, whole []byte, events []traceEvent, line int) (image []byte, answered uint64) {
	image = bytes.Clone(whole)
	synced := 0 // line before which a write must have ended to be durable
	for _, e := range events {
		if e.began <= line {
			answered = max(answered, e.answered)
		}
		if e.sync && e.ended <= line {
			synced = max(synced, e.began)
		}
	}
	share := float64(d.IntN(3)) / 2 // share of unsynced sectors that are kept: 0, a half, or all
	for _, e := range events {
		if e.began > line {
			continue
		}
		if more := max(int64(len(image)), e.size, e.at+int64(len(e.data))); more > int64(len(image)) {
			image = append(image, make([]byte, more-int64(len(image)))...)
		}
		for from := 0; from < len(e.data); from += cutSector {
			if e.ended < synced || d.Float64() < share {
				to := min(from+cutSector, len(e.data))
				copy(image[e.at+int64(from):], e.data[from:to])
			}
		}
	}
	return image, answered
}
