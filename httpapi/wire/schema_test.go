package wire_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire"
	clusterapi "ronbox/httpapi/wire/cluster"
	ledgerapi "ronbox/httpapi/wire/ledger"
	nodeapi "ronbox/httpapi/wire/node"
	registryapi "ronbox/httpapi/wire/registry"
	walletapi "ronbox/httpapi/wire/wallet"
)

// bodies are all the structs that cross the surface.
func bodies() []any {
	return []any{
		wire.Ready{},
		wire.ServiceReady{},
		wire.VersionInfo{},
		nodeapi.Status{},
		nodeapi.StoreStatus{},
		nodeapi.MemberStatus{},
		nodeapi.DrainRequest{},
		nodeapi.DrainLine{},
		nodeapi.Ending{},
		nodeapi.DBInfo{},
		nodeapi.SnapshotRequest{},
		nodeapi.Snapshot{},
		nodeapi.SnapshotLine{},
		nodeapi.Archive{},
		nodeapi.ArchiveLine{},
		nodeapi.DBStats{},
		nodeapi.BucketStats{},
		nodeapi.CacheStats{},
		nodeapi.CheckLine{},
		nodeapi.MintRequest{},
		nodeapi.Token{},
		nodeapi.TokenInfo{},
		nodeapi.TokenList{},
		nodeapi.RevokeRequest{},
		nodeapi.Revoked{},
		nodeapi.VerifyRequest{},
		nodeapi.Verdict{},
		nodeapi.FailedCaveat{},
		nodeapi.KeyInfo{},
		nodeapi.KeyList{},
		nodeapi.ConfigShow{},
		nodeapi.ConfigKey{},
		nodeapi.ConfigChange{},
		nodeapi.Reloaded{},
		nodeapi.AuditRow{},
		nodeapi.AuditPage{},
		nodeapi.AuditHello{},
		nodeapi.AuditLagged{},
		nodeapi.TaskInfo{},
		nodeapi.TaskList{},
		nodeapi.QueueInfo{},
		nodeapi.QueueList{},
		nodeapi.LogLevel{},
		nodeapi.Checkup{},
		nodeapi.NodeFinding{},
		nodeapi.Clock{},
		nodeapi.ClockExpiry{},
		nodeapi.ClockAccepted{},
		nodeapi.SnapshotInfo{},
		nodeapi.SnapshotList{},
		nodeapi.FleetStatus{},
		nodeapi.Session{},
		nodeapi.SessionList{},
		nodeapi.Series{},
		nodeapi.SeriesList{},
		nodeapi.RefusalCount{},
		clusterapi.ClusterStatus{},
		clusterapi.Member{},
		clusterapi.InitRequest{},
		clusterapi.Inited{},
		clusterapi.JoinTokenRequest{},
		clusterapi.JoinToken{},
		clusterapi.LeaveRequest{},
		clusterapi.RemoveRequest{},
		clusterapi.Removed{},
		clusterapi.RotateRequest{},
		clusterapi.Rotated{},
		clusterapi.TransferRequest{},
		clusterapi.Transferred{},
		wire.Problem{},
		registryapi.Head{},
		registryapi.Version{},
		registryapi.VersionStatus{},
		registryapi.Diff{},
		registryapi.Approval{},
		registryapi.Propose{},
		registryapi.Proposed{},
		registryapi.Quorum{},
		registryapi.Approved{},
		registryapi.Committed{},
		registryapi.Proposal{},
		registryapi.ProposalList{},
		registryapi.Signers{},
		registryapi.Genesis{},
		registryapi.Hello{},
		registryapi.Update{},
		registryapi.Lagged{},
		walletapi.Issue{},
		walletapi.Transfer{},
		walletapi.Burn{},
		walletapi.Hold{},
		walletapi.Capture{},
		walletapi.Release{},
		walletapi.FlagsChange{},
		walletapi.AssetDeclare{},
		walletapi.Batch{},
		walletapi.BatchOp{},
		walletapi.BatchAnswer{},
		walletapi.BatchResult{},
		walletapi.BatchError{},
		walletapi.Receipt{},
		walletapi.LedgerRef{},
		walletapi.Balance{},
		walletapi.Account{},
		walletapi.Asset{},
		walletapi.AssetList{},
		walletapi.HistoryEntry{},
		walletapi.History{},
		walletapi.Opening{},
		ledgerapi.Root{},
		ledgerapi.Roots{},
		ledgerapi.LedgerHead{},
		ledgerapi.LedgerHorizon{},
		ledgerapi.LedgerPeriod{},
		ledgerapi.LedgerPeriods{},
		ledgerapi.Proof{},
		ledgerapi.ProofPast{},
		ledgerapi.ProofName{},
		ledgerapi.Inclusion{},
		ledgerapi.LastBatch{},
		ledgerapi.LogHead{},
		ledgerapi.Consistency{},
		ledgerapi.ExportEnd{},
		registryapi.AuditChain{},
		registryapi.Checkpoint{},
		registryapi.CheckpointList{},
		registryapi.InclusionProof{},
		registryapi.ConsistencyProof{},
		registryapi.ItemProof{},
		registryapi.HighWater{},
		registryapi.Objection{},
		registryapi.RetentionPlan{},
		registryapi.VersionList{},
		registryapi.VersionLine{},
		registryapi.CatchUp{},
		registryapi.CaughtUp{},
		registryapi.Horizon{},
		registryapi.TargetGroup{},
	}
}

// A body that the tests do not know would have no proof.
func TestTheListOfBodiesIsWhole(t *testing.T) {
	var listed, declared []string
	for _, b := range bodies() {
		listed = append(listed, reflect.TypeOf(b).Name())
	}
	for _, file := range []string{
		"frame.go",
		"node/bodies.go",
		"node/inspect.go",
		"node/tokens.go",
		"registry/bodies.go",
		"registry/head.go",
		"ledger/bodies.go",
		"wallet/bodies.go",
		"cluster/bodies.go",
	} {
		declared = append(declared, structs(t, file)...)
	}
	slices.Sort(listed)
	slices.Sort(declared)
	if !slices.Equal(listed, declared) {
		t.Errorf("listed %q, declared %q", listed, declared)
	}
}

func structs(t *testing.T, file string) (names []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if _, ok := spec.Type.(*ast.StructType); ok || spec.Assign.IsValid() { // a struct, or one of the engine's
				names = append(names, spec.Name.Name)
			}
		}
		return true
	})
	return names
}

// document describes every body, each as the request of a route of its own.
func document(t *testing.T) *openapi.Document {
	t.Helper()
	var routes []openapi.Route
	for i, b := range bodies() {
		routes = append(routes, openapi.Route{
			ID:      strings.Repeat("a", i+1), // one word each
			Method:  http.MethodPost,
			Pattern: "/" + reflect.TypeOf(b).Name(),
			In:      b,
			Answers: []openapi.Answer{{Status: http.StatusNoContent}},
		})
	}
	d, err := openapi.Build(openapi.Info{Title: "bodies", Version: "1", Problem: wire.Problem{}}, routes)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// schemas compiles the schema of every body, and tells the pattern of a member.
func schemas(t *testing.T) (map[string]*jsonschema.Schema, func(typ, member string) string) {
	t.Helper()
	d, all, patterns := document(t), map[string]*jsonschema.Schema{}, map[string]string{}
	for _, b := range bodies() {
		name := reflect.TypeOf(b).Name()
		raw, ok := d.Schema(name)
		if !ok {
			t.Fatalf("%s has no schema", name)
		}
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		if err := c.AddResource(name, value(t, raw)); err != nil {
			t.Fatal(err)
		}
		s, err := c.Compile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = s
		for member, p := range s.Properties {
			held := p
			if items := p.Items2020; items != nil {
				held = items
			}
			if held.Pattern != nil {
				patterns[name+"."+member] = held.Pattern.String()
			}
		}
	}
	return all, func(typ, member string) string { return patterns[typ+"."+member] }
}

func value(t testing.TB, raw []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return v
}

// Whatever a body holds, its schema allows it and a strict reader gets it back.
func TestBodiesFitTheirSchemasAndRoundTrip(t *testing.T) {
	all, patterns := schemas(t)
	for _, b := range bodies() {
		typ := reflect.TypeOf(b)
		t.Run(typ.Name(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				body := reflect.New(typ)
				arbitrary(t, body.Elem(), patterns)
				raw, err := json.Marshal(body.Interface(), json.Deterministic(true))
				if err != nil {
					t.Fatal(err)
				}
				v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
				if err != nil {
					t.Fatal(err)
				}
				if err := all[typ.Name()].Validate(v); err != nil {
					t.Fatalf("%s\n%v", raw, err)
				}
				back := reflect.New(typ)
				if err := json.Unmarshal(raw, back.Interface(), json.RejectUnknownMembers(true)); err != nil {
					t.Fatalf("%s\n%v", raw, err)
				}
				again, err := json.Marshal(back.Interface(), json.Deterministic(true))
				if err != nil || !bytes.Equal(raw, again) {
					t.Fatalf("%s came back as %s, %v", raw, again, err)
				}
			})
		})
	}
}

// The patterns of the schema accept only texts that the node accepts, as far as a pattern can.
func TestSpellings(t *testing.T) {
	all, _ := schemas(t)
	for _, tt := range []struct {
		body, member string
		yes, no      []string
	}{
		{"MintRequest", "ttl", []string{"", "0", "900s", "30d", "1h30m", "250ms", "5us", "1ns"}, []string{"1.5h", "5µs", "5", "-1s", "1w", "s", " 1s"}},
		{"VerifyRequest", "amount", []string{"", "0", "7", strings.Repeat("9", 39)}, []string{"00", "07", "-1", "1.0", "1e3", strings.Repeat("9", 40)}},
		{"TokenInfo", "tid", []string{"01JTC0000000000000000000AA"}, []string{"", "01jtc0000000000000000000aa", "81JTC0000000000000000000AA", "01JTC0000000000000000000AU"}},
		{"Update", "committed_at", []string{"2026-01-02T03:04:05Z", "2026-01-02T03:04:05.5Z"}, []string{"", "2026-01-02T03:04:05+00:00", "2026-01-02 03:04:05Z"}},
		{"Transfer", "valid_until", []string{"2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456789+05:30"}, []string{"", "2026-01-02", "2026-01-02T03:04:05", "2026-01-02T3:04:05Z", "2026-01-02T03:04:05,5Z"}},
	} {
		s := all[tt.body].Properties[tt.member]
		for _, text := range tt.yes {
			if err := s.Validate(text); err != nil {
				t.Errorf("%s.%s = %q: %v", tt.body, tt.member, text, err)
			}
		}
		for _, text := range tt.no {
			if s.Validate(text) == nil {
				t.Errorf("%s.%s = %q passes", tt.body, tt.member, text)
			}
		}
	}
}

// A schema refuses a member that the body does not have, and the lack of one that it must have.
func TestSchemasAreStrict(t *testing.T) {
	all, _ := schemas(t)
	for _, b := range bodies() {
		name := reflect.TypeOf(b).Name()
		s := all[name]
		if err := s.Validate(map[string]any{"unheard_of": true}); err == nil ||
			!strings.Contains(err.Error(), "unheard_of") {
			t.Errorf("%s: err = %v", name, err)
		}
		if err := s.Validate(map[string]any{}); (err == nil) != (len(s.Required) == 0) {
			t.Errorf("%s requires %v: err = %v", name, s.Required, err)
		}
	}
}
