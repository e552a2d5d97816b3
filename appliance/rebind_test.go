package appliance

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"ronbox/appliance/config"
	"ronbox/engines"
)

// freeAddr is an address that nobody listens on for the moment.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { must(t, l.Close()) }()
	return l.Addr().String()
}

// A node that moves from address to address under load answers whatever it let in: who comes too late for the old address
// is refused there and asks at the new one, nobody is cut off.
func TestChangedBindDropsNothing(t *testing.T) {
	cfg, _ := devConfig(t)
	addrs := []string{freeAddr(t), freeAddr(t)}
	cfg.Server.Bind = freeAddr(t)
	moves := 0
	r := launchWith(t, cfg, Options{Load: func() (*config.Config, []config.Entry, error) {
		next := *cfg
		next.Server.Bind = addrs[moves%len(addrs)]
		moves++
		return &next, nil, nil
	}}).begin()
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var answered, refused atomic.Int64
	for i := range 4 {
		tr := &http.Transport{DisableKeepAlives: i%2 == 0}
		load.Go(func() {
			defer tr.CloseIdleConnections()
			for ctx.Err() == nil {
				switch err := ask(tr, "http://"+r.Addr()+"/registry/head"); {
				case err == nil:
					answered.Add(1)
				case errors.Is(err, syscall.ECONNREFUSED):
					refused.Add(1)
				default:
					t.Errorf("a request was dropped: %v", err)
					return
				}
			}
		})
	}
	const times = 8
	for n := range times {
		before := answered.Load()
		r.await("answers", func() bool { return answered.Load() > before+20 || t.Failed() })
		if done, err := r.Reload(t.Context(), engines.Actor{}, ""); err != nil || done.Version != uint64(n+2) || r.Addr() != addrs[n%len(addrs)] {
			t.Fatalf("move %d: %+v, %v, on %s", n, done, err, r.Addr())
		}
	}
	stop()
	load.Wait()
	if got := r.metric("registry_reload_success_total"); got != times {
		t.Errorf("%v successes", got)
	}
	t.Logf("%d answers, %d asked at an address that was left", answered.Load(), refused.Load())
	r.halt()
}

// ask wants a whole answer: what was asked for, or that it was too much.
func ask(tr *http.Transport, url string) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests { // a fast machine asks for more than its share
		return errors.New(resp.Status)
	}
	return nil
}
