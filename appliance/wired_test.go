package appliance

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/config"
	"ronbox/appliance/systemd"
	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// Every part of the node logs into the one log, each under its name.
func TestEveryPartLogs(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	crashed := twin(t, cfg)
	r.halt()
	crashed.Log.Level = "trace"
	r = start(t, crashed)
	r.receipt("/v1/transfer", "k", pay("alice", "bob", "1", 1))
	r.halt()
	seen := map[string]bool{}
	for line := range strings.Lines(r.log.String()) {
		var v struct{ Service, Event string }
		must(t, json.Unmarshal([]byte(line), &v))
		seen[v.Service+" "+v.Event] = true
	}
	for _, want := range []string{
		"node serving", "store unclean_boot", "registry recovery.done", "ledger recovery.done", "wallet wallet.transfer.accepted", "wallet http.request",
	} {
		if !seen[want] {
			t.Errorf("no line of %s\n%s", want, r.log)
		}
	}
}

// A collector that does not answer shows in the log and is counted.
func TestLostSpansAreTold(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.OTel.Exporter, cfg.OTel.Endpoint = "otlp", "http://"+freeAddr(t)
	r := start(t, cfg)
	r.mustPut(r.socket(), signer(t, cfg), 2, "traced")
	r.halt()
	if lost := r.metric("queue_dropped_total", "queue", "spans"); lost == 0 || !strings.Contains(r.log.String(), "spans lost") {
		t.Errorf("%v spans are counted as lost\n%s", lost, r.log)
	}
}

// A socket that the service manager has opened is the one that the node serves on.
func TestServesOnAnInheritedSocket(t *testing.T) {
	cfg, _ := devConfig(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := launchWith(t, cfg, Options{inherited: map[string]net.Listener{systemd.HTTPName: l}}).begin()
	if r.Addr() != l.Addr().String() {
		t.Errorf("it serves on %s, not on %s", r.Addr(), l.Addr())
	}
	r.halt()
}

// openMetrics tells whether a scrape that asks for OpenMetrics gets them.
func (r *rig) openMetrics() bool {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.Addr()+"/metrics", nil)
	must(r.t, err)
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	must(r.t, err)
	_ = resp.Body.Close()
	return strings.HasPrefix(resp.Header.Get("Content-Type"), "application/openmetrics-text")
}

// quiet does what is audited, where nothing is to be audited.
func (r *rig) quiet() {
	r.t.Helper()
	if _, err := r.socket().Mint(r.t.Context(), wire.MintRequest{Sub: "quiet", Scopes: []string{"registry.propose"}}); err != nil {
		r.t.Error(err)
	}
}

// What the configuration says of the audit chain and of the metrics holds from the start.
func TestBootConfigurationHolds(t *testing.T) {
	cfg, _ := devConfig(t)
	before := len(auditRows(t, cfg))
	cfg.Audit.Enabled, cfg.Metrics.OpenMetrics = false, true
	r := start(t, cfg)
	r.quiet()
	if !r.openMetrics() {
		t.Error("the metrics are no OpenMetrics")
	}
	if spec := r.v1("GET", "/openapi.json", "", ""); !strings.Contains(spec.body, `"version":"test"`) {
		t.Errorf("the version is not in the description of the API: %.200s", spec.body)
	}
	r.halt()
	if after := len(auditRows(t, cfg)); after != before {
		t.Errorf("%d audit rows, were %d", after, before)
	}
}

// Whoever follows the audit chain hears of a row that is written meanwhile.
func TestAuditRowsAreFollowed(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	known, heard, ended := make(chan struct{}, 64), make(chan struct{}), make(chan error, 1)
	c := r.socket()
	go func() {
		ended <- c.AuditStream(t.Context(), client.StreamOptions{LastEventID: "0"}, func(row wire.AuditRow) error {
			known <- struct{}{}
			if row.Event != "log.level_set" {
				return nil
			}
			close(heard)
			return client.ErrStop
		})
	}()
	<-known // it follows
	_, err := r.SetLogLevel(t.Context(), engines.Actor{}, "", wire.LogLevel{Level: "info"})
	must(t, err)
	select {
	case <-heard:
		must(t, <-ended)
	case <-time.After(patience):
		t.Error("no row of the new level")
	}
	r.halt()
}

// A commit that the committer tells of as slow reaches the flight recorder.
func TestSlowCommitsAreTold(t *testing.T) {
	n := wired(t, newConfig(t), Options{}, io.Discard)
	defer n.closeEngines()
	n.storeOptions(n.log).Slow("commit", 3*time.Second)
	if n.slow.Len() != 1 {
		t.Errorf("%d slow commits wait for the recorder", n.slow.Len())
	}
}

// The service manager hears what a boot does for long, whoever does it.
func TestLongBootsAreTold(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	r.receipt("/v1/transfer", "k", pay("alice", "bob", "1", 1))
	crashed := twin(t, cfg)
	r.halt()
	off := *cfg
	off.Registry.Enabled = false
	for _, tt := range []struct {
		cfg  *config.Config
		want string
	}{{crashed, "STATUS=check"}, {cfg, "STATUS=verify the registry"}, {&off, "STATUS=verify the ledger"}} {
		said := listen(t)
		start(t, tt.cfg).halt()
		if !strings.Contains(said.all(), tt.want) {
			t.Errorf("the manager does not hear %q:\n%s", tt.want, said.all())
		}
	}
}

// What a reload says to a part is in force there.
func TestPartsAreReloaded(t *testing.T) {
	cfg, _ := devConfig(t)
	before := len(auditRows(t, cfg))
	next := *cfg
	next.Ledger.SlotMax = 1
	next.Registry.Proposals.TTL = unit.Duration(time.Hour)
	next.Store.MinFree = 1 << 20
	next.Audit.Enabled, next.Metrics.OpenMetrics = false, true
	r := launchWith(t, cfg, Options{Load: func() (*config.Config, []config.Entry, error) { return &next, nil, nil }}).begin()
	if r.openMetrics() {
		t.Error("the metrics are OpenMetrics before")
	}
	_, err := r.Reload(t.Context(), engines.Actor{}, "")
	must(t, err)
	if !r.openMetrics() {
		t.Error("metrics: they are no OpenMetrics")
	}
	for n := uint64(1); n <= 2; n++ { // the second ends the slot of the first
		r.receipt("/v1/transfer", "k"+string('0'+rune(n)), pay("alice", "bob", "1", n))
	}
	r.await("ledger: a slot to be sealed", func() bool { return r.metric("idem_entries", "tier", "sealed") > 0 })
	r.await("store: another reserve", func() bool { return r.metric("store_disk_reserve_bytes") == 1<<20 })
	p, err := r.socket().Propose(t.Context(), draft(2, "x"), "")
	must(t, err)
	expires, err := time.Parse(time.RFC3339Nano, p.ExpiresAt)
	if left := time.Until(expires); err != nil || left > time.Hour || left < 30*time.Minute {
		t.Errorf("registry: a proposal expires in %s, %v", left, err)
	}
	r.quiet()
	r.halt()
	if after := len(auditRows(t, cfg)); after != before {
		t.Errorf("audit: %d rows, were %d", after, before)
	}
}

// A call of the ledger counts as stalled from when the configuration says.
func TestStallAfterIsTheConfigured(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.Ledger.StallAfter = unit.Duration(321 * time.Millisecond)
	r := start(t, cfg)
	release := r.holdStore()
	late := make(chan struct{})
	go func() {
		defer close(late)
		r.v1("POST", "/v1/transfer", "k", pay("alice", "bob", "1", 1))
	}()
	r.await("the wallet to find its ledger stalled", func() bool {
		return strings.Contains(r.board.Report("wallet", "").Causes["wallet.ledger_ready"], "321ms")
	})
	release()
	<-late
	r.halt()
}
