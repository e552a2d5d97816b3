package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/flow"
	"ronbox/engines/rewarder"
	"ronbox/httpapi"
	"ronbox/httpapi/front"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// For any body of a compute, the answer is a problem with the member at fault, or that of an engine
// that is closed. No body causes an internal error.
func FuzzComputeBody(f *testing.F) {
	const hash = "b3:0000000000000000000000000000000000000000000000000000000000000000"
	const good = `{"inputs_cid":"` + hash + `","policy_id":"p","policy_hash":"` + hash + `"}`
	r := newRig(f, func(s *httpapi.Settings, d *deps) {
		file := store.New(
			store.DefaultConfig(),
			store.Options{Path: filepath.Join(f.TempDir(), "ronbox.db"), Catalog: d.Catalog},
		)
		d.Rewarder = rewarder.New(
			rewarder.DefaultConfig(),
			rewarder.Deps{Catalog: d.Catalog, Store: file, Now: time.Now},
		)
		d.Catalog.CloseFedBy("rewarder", flow.HTTP)
		s.Limits["rewarder"] = httpapi.Limits{Inflight: 1024}
	})
	compute := func(body string) (int, wire.Problem, error) {
		req := httptest.NewRequest(http.MethodPost, "/rewarder/epochs/e/compute", strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		r.Router().ServeHTTP(rec, req.WithContext(front.WithPeer(req.Context(), &front.Peer{Socket: true, UID: 7})))
		var p wire.Problem
		err := json.Unmarshal(rec.Body.Bytes(), &p)
		return rec.Code, p, err
	}
	if code, p, err := compute(good); code != http.StatusServiceUnavailable || p.Reason != "draining" || err != nil {
		f.Fatalf("a good body: %d %+v, %v", code, p, err)
	}
	for _, body := range []string{
		good, `{}`, `null`, `[]`, `{"inputs_cid":1}`, `{"policy_id":"p","policy_id":"q"}`, "{\"a\":\xff}", good + good, "\ufeff" + good,
		`{"skip_refused":true,"empty_ok":"yes"}`, `{"deadline":"now"}`, "",
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		code, p, err := compute(body)
		if err != nil || p.Status != code || p.Reason == "" {
			t.Fatalf("%q: %d %+v, %v", body, code, p, err)
		}
		switch code {
		case http.StatusBadRequest,
			http.StatusRequestEntityTooLarge,
			http.StatusUnsupportedMediaType,
			http.StatusServiceUnavailable:
		default:
			t.Fatalf("%q: %d %s", body, code, p.Detail)
		}
	})
}
