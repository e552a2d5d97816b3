package httpapi_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/obs"
	"ronbox/engines"
	ledgerrecord "ronbox/engines/ledger/record"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/inflate"
	nodehttp "ronbox/httpapi/node"
	tables "ronbox/httpapi/refusal"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

type problemCase struct {
	err    error
	status int
	reason string
	retry  bool
}

func problemCases() []problemCase {
	return []problemCase{
		{&httpapi.BodyError{"payload", "is missing"}, 400, "schema", false},
		{&httpapi.QueryError{"from", "is missing"}, 400, "malformed", false},
		{&httpapi.HeaderError{"Deadline", "is not a time"}, 400, "bad_header", false},
		{httpapi.ErrNoBody, 400, "malformed", false},
		{httpapi.ErrBodyCut, 400, "malformed", false},
		{httpapi.ErrPath, 400, "malformed", false},
		{httpapi.ErrNested, 400, "malformed", false},
		{inflate.ErrStream, 400, "malformed", false},
		{inflate.ErrRatio, 400, "ratio_cap", false},
		{inflate.ErrTooLarge, 400, "decompress_cap", false},
		{inflate.ErrEncoding, 415, "unsupported_type", false},
		{httpapi.ErrEncoding, 415, "unsupported_type", false},
		{httpapi.ErrTarget, 414, "malformed", false},
		{httpapi.ErrHeaders, 431, "bad_header", false},
		{httpapi.ErrRate(time.Second), 429, "rate_limit", true},
		{&auth.LimitedError{RetryAfter: time.Second, Stage: "ip"}, 429, "rate_limit", true},
		{&engines.GrantError{Caveat: "account", Reason: "is another"}, 403, "forbidden", false},
		{httpapi.ErrPrecondition, 412, "precondition", false},
		{httpapi.ErrRange, 416, "range", false},
		{httpapi.ErrNoSchema, 404, "not_found", false},
		{httpapi.ErrNoSuch, 404, "not_found", false},
		{&nodehttp.ConflictError{Reason: "busy with another"}, 409, "conflict", false},
		{obs.ErrNotRecording, 409, "conflict", false},
		{
			&nodehttp.ReloadError{Reason: "restart", Keys: []string{"store.max_bytes"}},
			422,
			"reload_refused",
			false,
		},
		{nodehttp.ErrArchiveOff, 409, "archive_off", false},
		{nodehttp.ErrArchiveBusy, 409, "archive_busy", false},
		{nodehttp.ErrArchiveTarget, 502, "archive_target", false},
		{nodehttp.ErrArchiveLocal, 500, "archive_local", false},
		{&nodehttp.SnapshotDirError{Cause: errors.New("x")}, 400, "snapshot_dir", false},
		{store.ErrAmnesia, 503, "amnesia", false},
		{engines.ErrAmount, 400, "malformed", false},
		{engines.ErrAccount, 400, "malformed", false},
		{engines.ErrAsset, 400, "malformed", false},
		{auth.ErrSpec, 400, "malformed", false},
		{httpapi.ErrLength, 411, "length_required", false},
		{httpapi.ErrBodyTooLarge, 413, "body_cap", false},
		{httpapi.ErrMediaType, 415, "unsupported_type", false},
		{httpapi.ErrBodySlow, 408, "timeout", true},
		{httpapi.ErrNoRoute, 404, "not_found", false},
		{httpapi.ErrCORSOff, 403, "cors_off", false},
		{httpapi.ErrMethod, 405, "method", false},
		{auth.ErrUnauthenticated, 401, "unauth", false},
		{&auth.InvalidError{}, 401, "unauth", false},
		{&auth.DeniedError{}, 403, "forbidden", false},
		{httpapi.ErrInflight, 429, "inflight", true},
		{httpapi.ErrStreams, 429, "conn_cap", true},
		{httpapi.ErrDraining, 503, "draining", true},
		{httpapi.ErrStarting, 503, "degraded", true},
		{httpapi.ErrScrape, 503, "degraded", true},
		{record.ErrMalformed, 400, "malformed", false},
		{&record.FieldError{Field: "items.0.id", Reason: "is empty"}, 400, "malformed", false},
		{record.ErrHardLimit, 413, "hard_limit", false},
		{record.ErrChainMismatch, 409, "chain_mismatch", false},
		{record.ErrVersionSkew, 409, "version_skew", false},
		{record.ErrInvalidSig, 422, "invalid_sig", false},
		{&record.RevokedKeyError{SignerID: "org:a#1", Status: "revoked"}, 422, "revoked_key", false},
		{record.ErrRevokedKey, 422, "revoked_key", false},
		{&record.QuorumError{Have: 1, Need: 2}, 422, "quorum", false},
		{record.ErrQuorum, 422, "quorum", false},
		{record.ErrClockSkew, 422, "clock_skew", false},
		{document.ErrNotFound, 404, "not_found", false},
		{document.ErrExpired, 410, "expired", false},
		{document.ErrPruned, 410, "pruned", false},
		{document.ErrConflict, 409, "conflict", false},
		{&document.StateError{ID: proposal, State: "stale"}, 409, "conflict", false},
		{document.ErrForbidden, 403, "forbidden", false},
		{document.ErrRange, 400, "malformed", false},
		{
			&document.DuplicateApprovalError{SignerID: "a", Identical: true},
			409,
			"duplicate_approval",
			false,
		},
		{
			&document.PendingLimitError{Limit: "proposals.max_pending", Max: 256},
			409,
			"pending_limit",
			false,
		},
		{&document.FollowerError{Hub: "https://hub.example"}, 409, "follower", false},
		{&document.NotReadyError{Cause: "no_genesis"}, 503, "degraded", true},
		{&document.TimeoutError{Op: "commit"}, 504, "timeout", true},
		{store.ErrPoisoned, 503, "store_failed", true},
		{&store.PoisonError{Cause: errors.New("EIO"), Unknown: true}, 503, "store_failed", true},
		{store.ErrFull, 507, "store_full", true},
		{store.ErrNotLeader, 503, "not_leader", true},
		{httpapi.ErrElsewhere, 503, "not_leader", true},
		{store.ErrSlow, 503, "degraded", true},
		{store.ErrRestored, 503, "restored", true},
		{store.ErrTimeout, 504, "timeout", true},
		{flow.ErrBusy, 429, "busy", true},
		{flow.ErrClosed, 503, "draining", true},
		{flow.ErrUnknown, 504, "commit_unknown", true},
		{flow.ErrCanceled, 503, "canceled", true},
		{flow.ErrAborted, 503, "canceled", true},
		{context.DeadlineExceeded, 504, "timeout", true},
		{context.Canceled, 503, "canceled", true},
		{store.ErrInternal, 500, "internal", false},
		{store.ErrCorrupt, 500, "corrupt", false},
		{store.ErrDied, 500, "internal", false},
		{httpapi.ErrPanic, 500, "internal", false},
		{errors.New("what is this"), 500, "internal", false},
	}
}

func TestEveryErrorIsToldAndCountedOnce(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	r := newRig(t)
	r.undescribed = true
	for _, tt := range problemCases() {
		busy := 0.0 // every 429 is counted as a refusal of the endpoint too
		if tt.status == http.StatusTooManyRequests {
			busy = 1
		}
		service, endpoint, route := serviceRegistry, "commit", "/registry/commit/:id"
		if ofNode(tt.err) {
			service, endpoint, route = serviceNode, "admin", "/admin/v1/config/reload"
		}
		counts := []counted{
			{"rejected_total", []string{"reason", tt.reason, "service", service}, 1},
			{"rejected_total", nil, 1},
			{"busy_rejections_total", []string{"endpoint", endpoint}, busy},
			{"http_requests_total", []string{"route", route, "status", strconv.Itoa(tt.status)}, 1},
		}
		before := r.counts(t, counts)
		w := r.fails(fmt.Errorf("commit %s: %w", proposal, tt.err))
		p := problemIn(t, w.Body.String())
		if w.Code != tt.status || p.Status != tt.status || p.Reason != tt.reason ||
			p.Retryable != tt.retry {
			t.Errorf("%v: %d %+v, want %d %s retry %v", tt.err, w.Code, p, tt.status, tt.reason, tt.retry)
		}
		if w.Header().Get("Retry-After") != "" && !p.Retryable {
			t.Errorf("%v: says when to come back, and that there is no use in it", tt.err)
		}
		if p.Service != service || p.Type != "urn:ronbox:problem:"+service+":"+tt.reason ||
			p.CorrID != w.Header().Get("X-Corr-ID") {
			t.Errorf("%v: told as %+v", tt.err, p)
		}
		for i, after := range r.counts(t, counts) {
			if after-before[i] != counts[i].want {
				t.Errorf("%v: %s%q counted %v, want %v", tt.err, counts[i].family, counts[i].labels, after-before[i],
					counts[i].want)
			}
		}
	}
}

// counted is by how much a call must move some series.
type counted struct {
	family string
	labels []string
	want   float64
}

func (r *rig) counts(t *testing.T, all []counted) []float64 {
	t.Helper()
	out := make([]float64, len(all))
	for i, c := range all {
		out[i] = sum(t, r.metrics, c.family, c.labels...)
	}
	return out
}

func TestRetryAfterFollowsTheReason(t *testing.T) {
	for _, tt := range []struct {
		err      error
		min, max int
	}{
		{flow.ErrBusy, 1, 2}, {&document.NotReadyError{Cause: "loading"}, 5, 5}, {store.ErrPoisoned, 5, 5},
		{flow.ErrClosed, 10, 10}, {document.ErrNotFound, 0, 0},
		{httpapi.ErrRate(time.Millisecond), 1, 1}, {httpapi.ErrRate(2500 * time.Millisecond), 3, 3}, {&auth.LimitedError{RetryAfter: 7 * time.Second}, 7, 7},
	} {
		r := newRig(t)
		r.reg.set(tt.err)
		w := r.do(http.MethodPost, "/registry/commit/"+proposal, "", writer)
		got, _ := strconv.Atoi(w.Header().Get("Retry-After"))
		if got < tt.min || got > tt.max || got != problemIn(t, w.Body.String()).RetryAfter {
			t.Errorf("%v: Retry-After = %q, want %d..%d, as in the body", tt.err, w.Header().Get("Retry-After"), tt.min,
				tt.max)
		}
	}
}

func TestDetailsSayWhatTheCallerCanUse(t *testing.T) {
	for _, tt := range []struct {
		err        error
		key        string
		want       any
		hidesCause bool
	}{
		{&httpapi.BodyError{"payload.version", "x"}, "field", "payload.version", false},
		{&record.FieldError{Field: "items.0.id"}, "field", "items.0.id", false},
		{&record.QuorumError{Have: 1, Need: 2}, "need", 2.0, false},
		{&record.RevokedKeyError{Status: "retired"}, "status", "retired", false},
		{&document.DuplicateApprovalError{Identical: true}, "identical", true, false},
		{&document.NotReadyError{Cause: "no_genesis"}, "cause", "no_genesis", false},
		{flow.ErrUnknown, "outcome", "unknown", true},
		{&store.PoisonError{Cause: errors.New("EIO")}, "outcome", "unknown", true},
		{&document.TimeoutError{Op: "commit"}, "outcome", "none", false},
		{&auth.DeniedError{Reasons: []string{"scope"}}, "", nil, true},
		{&nodehttp.ReloadError{Reason: "restart", Detail: "store.max_bytes needs a restart"}, "cause", "restart", false},
	} {
		p := problemIn(t, newRig(t).fails(tt.err).Body.String())
		if tt.key != "" && p.Details[tt.key] != tt.want {
			t.Errorf("%v: details = %v, want %s = %v", tt.err, p.Details, tt.key, tt.want)
		}
		if p.Detail == "" ||
			tt.hidesCause == strings.Contains(p.Detail, strings.TrimPrefix(tt.err.Error(), "malformed: ")) {
			t.Errorf("%v: detail = %q", tt.err, p.Detail)
		}
	}
}

func TestFieldsAreToldPlainly(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&record.FieldError{Field: "origin", Reason: "must be x"}, "origin: must be x"},
		{&record.FieldError{Reason: "is empty"}, "is empty"},
		{&httpapi.BodyError{"payload.version", "is missing"}, "payload.version: is missing"},
	} {
		r := newRig(t)
		r.reg.set(fmt.Errorf("propose: %w", tt.err))
		p := problemIn(t, r.do(http.MethodPost, "/registry/commit/"+proposal, "", writer).Body.String())
		if !strings.HasSuffix(p.Detail, tt.want) || strings.Contains(p.Detail, "malformed") {
			t.Errorf("%v: detail %q, want %q", tt.err, p.Detail, tt.want)
		}
	}
}

func TestUnauthenticatedIsChallenged(t *testing.T) {
	w := newRig(t).do(http.MethodPost, "/registry/commit/"+proposal, "", nil)
	if w.Code != http.StatusUnauthorized || w.Header().Get("WWW-Authenticate") == "" {
		t.Errorf("%d, WWW-Authenticate %q", w.Code, w.Header().Get("WWW-Authenticate"))
	}
}

// notTold are errors that no request can meet, and those that are internal by intent.
var notTold = map[string]string{
	"flow.ErrEnded":                 "of a task, for the supervisor",
	"flow.ErrOver":                  "of a task, for the supervisor",
	"flow.PanicError":               "internal",
	"flow.ErrFlightFull":            "is wallet.ErrInFlight",
	"flow.ErrFenceMoved":            "is record.IdemConflict",
	"wallet.IndexError":             "is what it holds",
	"ledger.OpError":                "internal: the wallet checks before",
	"ledger.ErrUnavailable":         "is wallet.OutcomeError",
	"ledger.ErrKeys":                "a closing waits for it",
	"ledger.ErrRestored":            "is store.ErrRestored",
	"registry.GuardError":           "is record.ErrChainMismatch",
	"store.ErrBusy":                 "is flow.ErrBusy",
	"store.ErrClosed":               "is flow.ErrClosed",
	"store.ErrUnknown":              "is flow.ErrUnknown",
	"store.ErrDied":                 "internal; with PoisonError it is ErrPoisoned",
	"store.ErrInternal":             "internal",
	"store.ErrCorrupt":              "corrupt",
	"store.ErrLocked":               "at boot",
	"store.ErrClustered":            "at boot",
	"store.NothingError":            "the jobs of the group get ErrNotLeader",
	"store.ErrDiverged":             "poisons the store",
	"store.ErrFormat":               "of a standby, which serves nothing itself",
	"store.ErrSchema":               "at boot",
	"store.ErrNetwork":              "at boot",
	"store.PoisonError":             "is ErrPoisoned",
	"store.LockedError":             "at boot",
	"store.RowError":                "is ErrCorrupt",
	"store.ErrNoDatabase":           "is ErrCorrupt",
	"store.NamesError":              "is ErrCorrupt",
	"store.CommandError":            "is ErrInternal",
	"auth.InvalidError":             "is ErrUnauthenticated",
	"registry.GenesisMismatchError": "at boot",
	"registry.FollowMismatchError":  "at boot",
	"engines.ErrDecimal":            "of people: requests have minor units",
	"engines.ErrPrecision":          "of people: requests have minor units",
	"engines.ErrLarge":              "of people: requests have minor units",
	"record.ErrSnapshot":            "of a kept set: the file is corrupt",
}

func TestEveryErrorOfTheEnginesHasARow(t *testing.T) {
	var src []byte
	for _, name := range []string{"problem.go", "refusals.go", "node/refusals.go", "registry/refusals.go", "wallet/refusals.go"} {
		part, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		src = append(src, part...)
	}
	for pkg, dir := range map[string]string{
		"store": "../store", "flow": "../appliance/flow", "record": "../engines/registry/record",
		"registry": "../engines/registry", "auth": "auth", "engines": "../engines", "inflate": "inflate",
		"wallet": "../engines/wallet", "ledger": "../engines/ledger",
	} {
		names := exportedErrors(t, dir)
		if len(names) == 0 {
			t.Errorf("%s: no errors found: the scan is broken", dir)
		}
		for _, n := range names {
			full := pkg + "." + n
			if _, ok := notTold[full]; !ok && !strings.Contains(string(src), full) {
				t.Errorf("%s has no rule", full)
			}
		}
	}
}

// exportedErrors lists ErrX variables and XError types of the package in dir.
func exportedErrors(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range g.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					for _, n := range s.Names {
						if strings.HasPrefix(n.Name, "Err") && n.IsExported() {
							out = append(out, n.Name)
						}
					}
				case *ast.TypeSpec:
					if strings.HasSuffix(s.Name.Name, "Error") && s.Name.IsExported() {
						out = append(out, s.Name.Name)
					}
				}
			}
		}
	}
	return out
}

// ofNode reports whether an error is one that the operator's routes alone word.
func ofNode(err error) bool {
	return httpapi.IsA[*nodehttp.ConflictError](err) || httpapi.IsA[*nodehttp.ReloadError](err) ||
		httpapi.IsA[*nodehttp.SnapshotDirError](err) || errors.Is(err, obs.ErrNotRecording) ||
		errors.Is(err, nodehttp.ErrArchiveOff) || errors.Is(err, nodehttp.ErrArchiveBusy) ||
		errors.Is(err, nodehttp.ErrArchiveTarget) || errors.Is(err, nodehttp.ErrArchiveLocal)
}

// fails asks a route that fails with err.
func (r *rig) fails(err error) *httptest.ResponseRecorder {
	if ofNode(err) {
		r.node.err = err
		return r.socket(http.MethodPost, "/admin/v1/config/reload", "", nil)
	}
	r.reg.set(err)
	return r.do(http.MethodPost, "/registry/commit/"+proposal, "", writer)
}

// A flood of refusals makes no garbage by being told apart.
func TestClassifyAllocatesNothing(t *testing.T) {
	r := newRig(t)
	for _, err := range []error{httpapi.ErrRate(time.Second), httpapi.ErrInflight, httpapi.ErrNoRoute} {
		if n := testing.AllocsPerRun(100, func() { _ = r.Classify(serviceRegistry, err) }); n != 0 {
			t.Errorf("%v: %v allocations", err, n)
		}
	}
}

const codesFile = "../testdata/golden/codes.md"

const codesHead = `# Reasons of refusals
What a refusal says of itself, as callers meet it. ` + "`reason`" + ` is the label of ` + "`rejected_total`" + ` too; what is retryable may succeed later as
the same request, with the same Idempotency-Key. Made by ` + "`make golden`" + ` from the answers themselves.
`

// codeRow is one kind of refusal as it was answered.
type codeRow struct {
	reason, when string
	status       int
	retry        bool
}

func rowOf(p *wire.Problem) codeRow {
	return codeRow{p.Reason, p.Title, p.Status, p.Retryable}
}

// walletCodes are the answers of the wallet to every case there is, and to every rule of the
// ledger.
func walletCodes(t *testing.T) (out []codeRow) {
	cases := slices.Concat(badCases(), deniedCases(), limitCases(), conflictCases(), laterCases(), gravestCases())
	for code := ledgerrecord.IdemConflict; code.Known(); code++ {
		cases = append(cases, toldCase{ask: payWith(refusedBy(code))})
	}
	r := newRig(t)
	for _, tt := range cases {
		r.renew()
		p := problemIn(t, tt.ask(r).Body.String())
		out = append(out, rowOf(&p))
	}
	return out
}

// otherCodes are the answers of the registry and the node.
func otherCodes(t *testing.T) (out []codeRow) {
	r := newRig(t)
	r.undescribed = true
	for _, tt := range problemCases() {
		p := problemIn(t, r.fails(tt.err).Body.String())
		out = append(out, rowOf(&p))
	}
	return out
}

// edgeCodes are the outcomes of the edge, in addition to the shared ones.
func edgeCodes(t *testing.T) (out []codeRow) {
	r := newRig(t)
	r.undescribed = true
	for _, tt := range edgeCases() {
		r.edge.err = tt.err
		p := problemIn(t, r.do(http.MethodGet, "/edge/assets/"+fakeAsset, "", nil).Body.String())
		out = append(out, rowOf(&p))
	}
	return out
}

func codesTable(title string, rows []codeRow) string {
	slices.SortFunc(rows, func(a, b codeRow) int {
		return cmp.Or(cmp.Compare(a.reason, b.reason), cmp.Compare(a.status, b.status), cmp.Compare(a.when, b.when))
	})
	var out strings.Builder
	fmt.Fprintf(&out, "\n## %s\n| reason | status | retryable | when |\n|---|---|---|---|\n", title)
	for _, r := range slices.Compact(rows) {
		fmt.Fprintf(
			&out,
			"| `%s` | %d | %s | %s |\n",
			r.reason,
			r.status,
			map[bool]string{true: "yes", false: "no"}[r.retry],
			r.when,
		)
	}
	return out.String()
}

// The table of reasons is what callers are told, and every kind of refusal that there is is in it.
func TestCodesGolden(t *testing.T) {
	wallet, other := walletCodes(t), otherCodes(t)
	titles := map[string]bool{}
	for _, r := range slices.Concat(wallet, other) {
		titles[r.when] = true
	}
	for _, r := range tables.Shared {
		if !titles[r.Title] {
			t.Errorf("%q: no case meets it", r.Title)
		}
	}
	got := codesHead + codesTable("The wallet and the ledger: every route under /v1", wallet) + codesTable(
		"The registry and the node",
		other,
	) +
		codesTable("The edge: every route under /edge", edgeCodes(t))
	if *update {
		if err := os.WriteFile(codesFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(codesFile); err != nil || string(want) != got {
		t.Errorf("%s is not what is answered (%v): run `make golden` and read the diff", codesFile, err)
	}
}

// twoStatuses are the causes with another status than the other refusals of their reason. None may
// be added.
var twoStatuses = map[string]string{
	"target":       "malformed",  // 414
	"headers":      "bad_header", // 431
	"slow_body":    "timeout",    // 408
	"shut_out":     "corrupt",    // 503
	"object":       "corrupt",    // 503, of the edge
	"leader_stays": "busy",       // 503
}

// A reason is a lower-case word, and a service answers it with one status.
func TestAReasonHasOneStatus(t *testing.T) {
	word, statuses := regexp.MustCompile(`^[a-z0-9_]+$`), map[string]int{}
	for _, r := range newRig(t).Refusals() {
		name := r.Service + " " + r.Reason
		if !word.MatchString(r.Reason) {
			t.Errorf("%s is no word", name)
		}
		if twoStatuses[r.Cause] == r.Reason {
			continue
		}
		if was, known := statuses[name]; known && was != r.Status {
			t.Errorf("%s: status %d and %d", name, was, r.Status)
		}
		statuses[name] = r.Status
	}
}
