package clustertest

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// events is the load of a reader of payments, who follows those of one account at one node after
// the other, and resumes after the last id.
type events struct {
	loud
	c   *cluster
	via *http.Transport

	last    uint64   // id
	seqs    []uint64 // of the payments of this round
	checked uint64   // the last record of earlier rounds
}

func newEvents(c *cluster) *events {
	return &events{c: c, via: &http.Transport{DisableKeepAlives: true}}
}

func (e *events) clients() []func(context.Context, *rand.Rand) {
	return []func(context.Context, *rand.Rand){e.run}
}

// run follows the payments at a random node, until the stream breaks or a random time has passed.
func (e *events) run(ctx context.Context, d *rand.Rand) {
	for ctx.Err() == nil {
		within, stop := context.WithTimeout(ctx, 200*time.Millisecond+time.Duration(d.Int64N(int64(3*time.Second))))
		e.follow(within, d.IntN(len(e.c.nodes)), 0)
		stop()
		shortPause(ctx, d, 200*time.Millisecond)
	}
}

// follow reads one stream of the node at place, until ctx ends, the stream breaks, or the reader has
// the record least, unless least is 0.
func (e *events) follow(ctx context.Context, place int, least uint64) {
	url := "http://" + e.c.nodes[place].http + "/v1/events?op=transfer&account=" + till(0)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		e.fault("%w", err)
		return
	}
	r.Header.Set("Authorization", "Bearer "+e.c.secret)
	r.Header.Set("Last-Event-ID", strconv.FormatUint(e.last, 10))
	resp, err := e.via.RoundTrip(r)
	if err != nil {
		return
	}
	defer func() { _ = resp.Body.Close() }()
	if s := resp.StatusCode; s != http.StatusOK {
		if s < 500 && s != http.StatusTooManyRequests {
			e.fault("events after %d at %s: %s", e.last, e.c.nodes[place].name, resp.Status)
		}
		return
	}
	var frame []string
	for lines := bufio.NewScanner(resp.Body); lines.Scan() && (least == 0 || e.last < least); {
		if frame = append(frame, lines.Text()); lines.Text() == "" {
			e.take(frame)
			frame = nil
		}
	}
}

// take notes the id of a whole frame, and the payment unless it is a ping.
func (e *events) take(frame []string) {
	for i, line := range frame {
		id, ok := strings.CutPrefix(line, "id: ")
		if !ok {
			continue
		}
		seq, err := strconv.ParseUint(id, 10, 64)
		paid := strings.HasPrefix(frame[i+1], "event: wallet.transfer")
		if err != nil || seq < e.last || paid && seq == e.last {
			e.fault("the id %s after %d", id, e.last)
		}
		if e.last = seq; paid {
			e.seqs = append(e.seqs, seq)
		}
	}
}

// check expects each transfer of the account in the journal of the leader once.
func (e *events) check(ctx context.Context, d *rand.Rand) error {
	var want []uint64
	err := repeat(ctx, func(ctx context.Context) (err error) {
		want, err = e.posted(ctx, d)
		return err
	})
	if err != nil {
		return err
	}
	if len(want) > 0 {
		e.checked = want[len(want)-1]
	}
	late, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for e.last < e.checked && late.Err() == nil {
		e.follow(late, d.IntN(len(e.c.nodes)), e.checked)
		shortPause(late, d, 50*time.Millisecond)
	}
	if !slices.Equal(e.seqs, want) {
		e.fault("the reader has the payments %v, the journal %v", e.seqs, want)
	}
	e.seqs = nil
	return e.err()
}

// posted returns the records of the transfers of the account after the checked ones.
func (e *events) posted(ctx context.Context, d *rand.Rand) (seqs []uint64, err error) {
	err = e.c.svc.wallets[d.IntN(len(e.c.nodes))].ExportLedger(ctx, e.checked+1, 0, false, func(line []byte) error {
		var r struct {
			Seq  uint64 `json:"seq"`
			Op   string `json:"op"`
			From string `json:"from"`
			To   string `json:"to"`
		}
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("the journal: %w", err)
		}
		if r.Op == "transfer" && (r.From == till(0) || r.To == till(0)) {
			seqs = append(seqs, r.Seq)
		}
		return nil
	})
	return seqs, err
}
