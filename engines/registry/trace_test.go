package registry_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"ronbox/appliance/obs"
)

// Every step of a version has a span with its subject and its result.
func TestStepsAreTraced(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var sent strings.Builder
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.Copy(&sent, r.Body)
	}))
	defer collector.Close()
	tracer, err := obs.NewTracer(
		obs.OTelConfig{Exporter: "otlp", Endpoint: collector.URL, SampleReads: 1, SampleWrites: 1},
		obs.TracerID{},
	)
	if err != nil {
		t.Fatal(err)
	}
	r, s := newLogRig(t)
	r.Stop()
	r.Tracer = tracer
	r.Open()
	r.Start()
	r.Attached()
	r.Genesis(s, "a")
	if _, err := r.Engine.Propose(r.Ctx(), alice, delta(20, "far"), "", "corr-far"); err == nil {
		t.Fatal("a version far ahead was taken")
	}
	p := r.Propose(2, "b")
	r.Approve(p, s.Keys...)
	c := r.Commit(p)
	cover(r)
	r.Stop()
	for _, want := range [][]string{
		{"propose", "corr-far", "rejected", "err.code", "version_skew"},
		{"propose", "corr-propose", p.ID, "target_version", p.PayloadB3.String(), "accepted"},
		{"approve", "corr-approve", p.ID, "target_version", p.PayloadB3.String(), "quorum_m", "quorum_n", "accepted"},
		{"commit", "corr-commit", p.ID, "target_version", p.PayloadB3.String(), "quorum_m", "quorum_n", "accepted"},
		{"emit_bus", "corr-commit", "target_version", c.PayloadB3.String(), "accepted"},
		{"checkpoint", "target_version", c.PayloadB3.String(), "accepted"},
	} {
		r.WaitFor(fmt.Sprintf("a span that is %q", want), func() bool {
			mu.Lock()
			defer mu.Unlock()
			return hasSpan(strings.Split(sent.String(), "svc.registry."), want) // the name stands before the attributes
		})
	}
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func hasSpan(spans, want []string) bool {
	for _, span := range spans {
		found := strings.HasPrefix(span, want[0])
		for _, text := range want {
			found = found && strings.Contains(span, text)
		}
		if found {
			return true
		}
	}
	return false
}
