package main

import (
	"bytes"
	"context"
	"encoding/hex"
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
	events := parseTrace(t, b.traced(t))
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
		at := 1 + d.IntN(len(events))
		image, answered := cutAt(d, whole, events[:at])
		if err := os.WriteFile(path, image, 0o600); err != nil {
			t.Fatal(err)
		}
		r := ronbox(t, "ledger", "verify", path, "--json")
		var doc lverify.Report
		if decode(t, r.stdout, &doc); r.code != cli.ExitDone || !doc.OK || doc.Head.Seq < answered {
			t.Fatalf("cut after event %d of %d, record %d was answered: exit %d, %+v\n%s", at, len(events), answered,
				r.code, doc, r.stderr)
		}
	}
}

// traced runs payments on a node under strace and returns the trace.
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
	raw, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// traceEvent is one event of a traced node: a write to its file, a change of its length, a finished
// sync of all writes before an earlier event, or an answered payment.
type traceEvent struct {
	data     []byte
	at       int64
	size     int64
	synced   int    // index of the first event that the sync does not cover, plus one
	answered uint64 // sequence number of the record
}

var (
	traceCall = regexp.MustCompile(`^(\d+) +(\w+)\(\d+<([^>]*)>(.*)$`)
	traceSeq  = regexp.MustCompile(`"txid":.*"seq":(\d+)`)
	traceText = regexp.MustCompile(`"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?, (.*)`)
	traceEnds = regexp.MustCompile(`^(\d+) +<\.\.\. (?:fdatasync|fsync) resumed>.*= 0`)
)

// parseTrace parses the output of strace: calls in order, with two lines for a call that took long.
func parseTrace(t *testing.T, trace string) (out []traceEvent) {
	t.Helper()
	begun := map[string]int{} // by thread: events when its sync began
	for line := range strings.Lines(trace) {
		if m := traceEnds.FindStringSubmatch(line); m != nil && begun[m[1]] != 0 {
			out = append(out, traceEvent{synced: begun[m[1]]})
			delete(begun, m[1])
			continue
		}
		m := traceCall.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		ours := strings.HasSuffix(unhex(m[3]), "/ronbox.db")
		switch call, rest := m[2], m[4]; {
		case call == "write" && !ours:
			if text := traceText.FindStringSubmatch(rest); text != nil {
				if seq := traceSeq.FindStringSubmatch(unhex(text[1])); seq != nil &&
					strings.HasPrefix(unhex(text[1]), "HTTP/1.1 200") {
					n, _ := strconv.ParseUint(seq[1], 10, 64)
					out = append(out, traceEvent{answered: n})
				}
			}
		case !ours:
		case call == "pwrite64":
			text := traceText.FindStringSubmatch(rest)
			if text == nil || text[2] != "" {
				t.Fatalf("a write that cannot be read: %.200s", line)
			}
			out = append(out, traceEvent{data: []byte(unhex(text[1])), at: lastNumber(t, text[3])})
		case call == "ftruncate":
			out = append(out, traceEvent{size: lastNumber(t, rest)})
		case call != "fdatasync" && call != "fsync":
			if call != "fallocate" {
				t.Fatalf("a call that is not known here: %.200s", line)
			}
		case strings.Contains(line, "unfinished"):
			begun[m[1]] = len(out) + 1
		case strings.HasSuffix(rest, "= 0"):
			out = append(out, traceEvent{synced: len(out) + 1})
		}
	}
	return out
}

// unhex decodes text of the form \x00\x01.
func unhex(text string) string {
	raw, _ := hex.DecodeString(strings.ReplaceAll(text, `\x`, ""))
	return string(raw)
}

var traceNumber = regexp.MustCompile(`(\d+)(?: <unfinished \.\.\.>|\) += \d+)?$`)

// lastNumber returns the last argument of a call.
func lastNumber(t *testing.T, args string) int64 {
	t.Helper()
	m := traceNumber.FindStringSubmatch(args)
	if m == nil {
		t.Fatalf("no number in %q", args)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// cutAt returns the file as a disk holds it after some events and a power cut, and the last record
// that was answered before the cut.
func cutAt(d *rand.Rand, whole []byte, events []traceEvent) (image []byte, answered uint64) {
	image = bytes.Clone(whole)
	synced := 0
	for _, e := range events {
		synced, answered = max(synced, e.synced), max(answered, e.answered)
	}
	share := float64(d.IntN(3)) / 2 // share of unsynced sectors that are kept: 0, a half, or all
	for i, e := range events {
		if more := max(int64(len(image)), e.size, e.at+int64(len(e.data))); more > int64(len(image)) {
			image = append(image, make([]byte, more-int64(len(image)))...)
		}
		for from := 0; from < len(e.data); from += cutSector {
			if i < synced || d.Float64() < share {
				to := min(from+cutSector, len(e.data))
				copy(image[e.at+int64(from):], e.data[from:to])
			}
		}
	}
	return image, answered
}
