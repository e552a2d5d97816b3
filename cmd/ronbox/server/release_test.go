package server

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/store"
)

const releases = "../../../testdata/releases/"

// goldenAnswer is an answer of the release that made the directory.
type goldenAnswer struct {
	Path   string `json:"path"`
	Status int    `json:"status"`
	Body   string `json:"body"`
}

// TestReleaseOpens starts this program on the data directory of each earlier form and compares its
// answers: balances, receipts, holds, tokens, registry, runs, names, objects. The clock is that of
// the day on which the directory was made, since holds and records end.
func TestReleaseOpens(t *testing.T) {
	t.Parallel()
	for release, schema := range releaseSchemas {
		t.Run(release, func(t *testing.T) { releaseOpens(t, release, schema) })
	}
}

// releaseSchemas are the schemas of the recorded data directories.
var releaseSchemas = map[string]int{"e1db11e": 1, "776b46d": 2, "de1fc8f": 3, "fd08323": 4, "30fa6d6": 5, "02b9a60": 6}

func releaseOpens(t *testing.T, release string, schema int) {
	cfg, made := unpacked(t, release)
	var offset atomic.Int64
	offset.Store(int64(time.Until(made)))
	r := launchAt(t, cfg, turned(&offset))
	r.await("packs are served", func() bool { return r.ask(t, "/edge/tiles/one.json").Status == http.StatusOK })
	for _, want := range answersOf(t, release) {
		got := r.ask(t, want.Path)
		if got.Status != want.Status || !agrees(want, got) {
			t.Errorf("GET %s: %d %s\nwas %d %s", want.Path, got.Status, got.Body, want.Status, want.Body)
		}
	}
	r.logged(`"event":"migrated"`)
	r.halt()
	checkedFile(t, cfg.Path(config.DatabaseName), store.Schema)
	snapshots, err := filepath.Glob(cfg.Path(fmt.Sprintf("pre-migrate-v%d-*.db", schema)))
	if err != nil || len(snapshots) != 1 {
		t.Fatalf("snapshots %v, %v", snapshots, err)
	}
	checkedFile(t, snapshots[0], schema)
}

// TestMigratedOffline migrates without a node, as `ronbox db migrate` does.
func TestMigratedOffline(t *testing.T) {
	for release, schema := range releaseSchemas {
		cfg, _ := unpacked(t, release)
		done, err := store.Migrate(t.Context(), cfg.Path(config.DatabaseName), "", wiring.Migrations(), nil)
		if err != nil || done.From != schema || done.To != store.Schema {
			t.Fatalf("%s: %+v, %v", release, done, err)
		}
		checkedFile(t, cfg.Path(config.DatabaseName), store.Schema)
	}
}

// checkedFile wants a file to be sound.
func checkedFile(t *testing.T, file string, schema int) {
	t.Helper()
	if rep := checkedRows(t, file); !rep.OK || rep.Info.Schema != schema {
		t.Errorf("%s: schema %d, %+v", file, rep.Info.Schema, rep.Steps)
	}
}

// checkedRows checks every row of a file.
func checkedRows(t *testing.T, file string) store.Report {
	t.Helper()
	var checks []store.Check
	for _, s := range wiring.All() {
		if s.Checks != nil {
			checks = append(checks, s.Checks(t.Context())...)
		}
	}
	rep, err := store.Verify(t.Context(), file, nil, checks, nil)
	must(t, err)
	return rep
}

// unpacked is the configuration of a recorded data directory, and the time at which it was made.
func unpacked(t *testing.T, release string) (*config.Config, time.Time) {
	t.Helper()
	cfg := newConfig(t)
	f, err := os.Open(releases + release + ".tar.gz")
	must(t, err)
	defer func() { _ = f.Close() }()
	zipped, err := gzip.NewReader(f)
	must(t, err)
	var made time.Time
	for archive := tar.NewReader(zipped); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return loaded(t, cfg), made
		}
		must(t, err)
		path := cfg.Path(h.Name)
		if h.FileInfo().IsDir() {
			must(t, os.MkdirAll(path, 0o700))
			continue
		}
		raw, err := io.ReadAll(archive)
		must(t, err)
		must(t, os.WriteFile(path, raw, 0o600))
		must(t, os.Chtimes(path, h.ModTime, h.ModTime))
		if h.Name == "./"+config.DatabaseName {
			made = h.ModTime
		}
	}
}

// answersOf reads the recorded answers of a release.
func answersOf(t *testing.T, release string) (all []goldenAnswer) {
	t.Helper()
	raw, err := os.ReadFile(releases + release + ".answers.ndjson")
	must(t, err)
	for d := json.NewDecoder(bytes.NewReader(raw)); ; {
		var one goldenAnswer
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			return all
		} else {
			must(t, err)
		}
		all = append(all, one)
	}
}

// ask asks the node with the token of its first administrator.
func (r *rig) ask(t *testing.T, path string) goldenAnswer {
	t.Helper()
	token, err := os.ReadFile(r.cfg.Path(config.TokenName))
	must(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.Addr()+path, nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Accept", "application/json")
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return goldenAnswer{path, resp.StatusCode, string(body)}
}

// agrees reports whether an answer still says all that was recorded. Receipts are equal byte for
// byte.
func agrees(want, got goldenAnswer) bool {
	var was, is any
	if strings.HasPrefix(want.Path, "/v1/tx/tx_") || json.Unmarshal([]byte(want.Body), &was) != nil {
		return want.Body == got.Body
	}
	return json.Unmarshal([]byte(got.Body), &is) == nil && holds(is, was)
}

// holds reports whether a document has all members of another with the same values, but for those
// that tell when it was asked.
func holds(is, was any) bool {
	old, isObject := was.(map[string]any)
	if list, ok := was.([]any); ok {
		now, ok := is.([]any)
		if !ok || len(now) != len(list) {
			return false
		}
		for i := range list {
			if !holds(now[i], list[i]) {
				return false
			}
		}
		return true
	}
	if !isObject {
		return reflect.DeepEqual(is, was)
	}
	now, ok := is.(map[string]any)
	for name, value := range old {
		switch name {
		case "bounds", "center": // left out since, if a pack has none
			continue
		case "as_of", "as_of_seq", "stale_ms", "freshness_s", "corr_id", "instance", "detail", "verified", "tiles", "used":
			continue
		case "code":
			if _, problem := old["instance"]; problem { // former releases had one
				continue
			}
		}
		if !ok || !holds(now[name], value) {
			return false
		}
	}
	return ok
}
