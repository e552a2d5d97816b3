package server

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/clock"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	walletapi "ronbox/httpapi/wire/wallet"
)

// unsynchronised runs a node on clocks that the kernel does not trust.
func unsynchronised(t *testing.T, cfg *config.Config, read func() (time.Time, time.Duration)) *rig {
	t.Helper()
	distrust := func() bool { return false }
	return launchWith(t, cfg, Options{clock: clock.Options{Read: read, Synchronised: distrust}}).begin()
}

// local makes a call of the wallet over the admin socket, where no token expires. It retries while
// the disk is slow.
func (r *rig) local(path, key, body string) reply {
	r.t.Helper()
	c := r.socket()
	defer c.Close()
	for late := time.Now().Add(patience); ; r.writable(true) {
		var raw []byte
		header, err := c.Do(r.t.Context(), client.Call{
			Method: "POST", Path: path, Body: []byte(body), Into: &raw, Accept: []int{http.StatusMultiStatus},
			Header: http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {key}},
		})
		var p *wire.Problem
		switch {
		case err == nil:
			return reply{http.StatusOK, string(raw), header.Get(client.ReplayHeader) == "true", wire.Problem{}}
		case !errors.As(err, &p):
			r.t.Fatalf("%s: %v", path, err)
		case !isRetryLater(p) || time.Now().After(late):
			return reply{p.Status, p.Detail, false, *p}
		}
	}
}

// clockTold waits until the node reports that its clock and the wall clock differ, or that they do
// not.
func (r *rig) clockTold(wrong float64) {
	r.t.Helper()
	r.await("the clock to be told", func() bool {
		return r.metric("readyz_degraded", "service", "node", "cause", keyClock) == wrong
	})
}

const transferOne = `{"from":"alice","to":"bob","asset":"ron","amount_minor":"1"}`

// A wall clock that is wrong for seconds makes no payment run twice, expires no hold, and refuses
// nothing: not a transfer, an issue, a batch or a hold.
func TestNothingRunsTwiceForAClock(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	cfg, _ := devConfig(t)
	unhurried(cfg)
	var off atomic.Int64
	r := unsynchronised(t, cfg, turned(&off))
	calls := []struct{ path, body string }{
		{"/v1/transfer", transferOne},
		{"/v1/issue", `{"to":"bob","asset":"ron","amount_minor":"1"}`},
		{"/v1/batch", `{"mode":"independent","ops":[` + strings.Replace(transferOne, "{", `{"op":"transfer",`, 1) + `]}`},
		{"/v1/hold", strings.Replace(transferOne, "}", `,"expires_in_s":7200}`, 1)},
	}
	for _, by := range []time.Duration{25 * hour, 26 * hour, -26 * hour, 365 * 24 * hour, 20 * 365 * 24 * hour} {
		first := make([]reply, len(calls))
		key := func(i int) string { return fmt.Sprintf("%s-%d", by, i) }
		for i, c := range calls {
			if first[i] = r.local(c.path, key(i), c.body); first[i].status != http.StatusOK {
				t.Fatalf("%s: %+v", c.path, first[i])
			}
		}
		off.Store(int64(by))
		r.clockTold(1)
		if during := r.local("/v1/transfer", key(10), transferOne); during.status != http.StatusOK {
			t.Errorf("while the clock is off by %s: %+v", by, during)
		}
		off.Store(0)
		r.clockTold(0)
		r.local("/v1/transfer", key(11), transferOne)
		for i, c := range calls {
			if again := r.local(c.path, key(i), c.body); !again.replayed || again.body != first[i].body {
				t.Errorf("%s after %s: %+v, first %+v", c.path, by, again, first[i])
			}
		}
		var hold walletapi.Receipt
		must(t, json.Unmarshal([]byte(first[3].body), &hold))
		if taken := r.local("/v1/capture", key(12), `{"hold":"`+hold.TxID+`"}`); taken.status != http.StatusOK {
			t.Errorf("the hold after %s: %+v", by, taken)
		}
	}
	r.halt()
	verified(t, cfg)
}

// A node whose clock went ten years ahead pays when the wall clock is right again, and after a
// restart, and it knows its keys.
func TestPaysAfterTenYearsAhead(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	unhurried(cfg)
	var off atomic.Int64
	r := unsynchronised(t, cfg, turned(&off))
	first := r.local("/v1/transfer", "k1", transferOne)
	off.Store(int64(10 * 365 * 24 * time.Hour))
	r.clockTold(1)
	_, err := r.clock.Accept()
	must(t, err)
	ahead := r.local("/v1/transfer", "k2", transferOne)
	off.Store(0)
	r.clockTold(1)
	for n := 3; ; n++ {
		if paid := r.local("/v1/transfer", fmt.Sprint("k", n), transferOne); paid.status != http.StatusOK || paid.replayed {
			t.Errorf("payment %d: %+v", n, paid)
		}
		for key, was := range map[string]reply{"k1": first, "k2": ahead} {
			if again := r.local("/v1/transfer", key, transferOne); !again.replayed || again.body != was.body {
				t.Errorf("%s: %+v, first %+v", key, again, was)
			}
		}
		r.halt()
		if n == 4 {
			break
		}
		r = unsynchronised(t, cfg, turned(&off))
	}
	verified(t, cfg)
}

// From its expiry on, a hold has ended for every route, whichever comes first.
func TestRoutesAgreeOnAnExpiredHold(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	unhurried(cfg)
	var more atomic.Int64
	r := unsynchronised(t, cfg, passing(&more))
	routes := []func(payer, hold, key string){
		func(_, hold, key string) {
			got := r.v1("POST", "/v1/capture", key, `{"hold":"`+hold+`"}`)
			if got.problem.Reason != "hold_expired" {
				t.Errorf("capture: %+v", got)
			}
		},
		func(_, hold, _ string) {
			if got := r.v1("GET", "/v1/holds/"+hold, "", ""); !strings.Contains(got.body, `"state":"expired"`) {
				t.Errorf("hold: %+v", got)
			}
		},
		func(payer, hold, _ string) {
			if got := r.v1("GET", "/v1/holds?account="+payer, "", ""); strings.Contains(got.body, hold) {
				t.Errorf("holds: %+v", got)
			}
		},
		func(payer, _, _ string) { r.has(payer, "10", 0) },
		func(payer, _, key string) { // last in each round: the payer spends the amount
			body := strings.Replace(transferOne, "alice", payer, 1)
			r.receipt("/v1/transfer", key, strings.Replace(body, `"1"`, `"10"`, 1))
		},
	}
	last := len(routes) - 1
	for begin := range routes {
		payer := fmt.Sprint("payer/", begin)
		key := func(what string) string { return fmt.Sprint(what, begin) }
		r.receipt("/v1/issue", key("i"), strings.Replace(`{"to":"P","asset":"ron","amount_minor":"10"}`, "P", payer, 1))
		hold, _ := r.receipt("/v1/hold", key("h"), strings.Replace(
			`{"from":"P","to":"shop","asset":"ron","amount_minor":"10","expires_in_s":60}`, "P", payer, 1))
		r.has(payer, "0", 0)
		more.Add(int64(time.Minute))
		for i := range last {
			if begin < last {
				routes[(begin+i)%last](payer, hold.TxID, fmt.Sprint("c", begin, "-", i))
			}
		}
		routes[last](payer, hold.TxID, key("t"))
	}
	r.halt()
	verified(t, cfg)
}
