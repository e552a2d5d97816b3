package node

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines/registry"
	"ronbox/engines/registry/follow"
	"ronbox/httpapi/refusal"
)

// wired returns a node that is not started.
func wired(t *testing.T) *server.Node {
	t.Helper()
	n, err := server.New(config.Default(), server.Build{}, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Each reason of the API and of the audit chains, each exit code and each readiness key is
// explained, and no other code is. TestReasonsHaveWords holds the reasons of the registry's chain,
// which are those of the API.
func TestEveryCodeIsExplained(t *testing.T) {
	n := wired(t)
	want := map[string]bool{
		"ready data": true, "ready amnesia_ok": true, "ready task": true, // keys that a healthy node does not have
		"ready follow_ok": true,
		kindState + " " + string(registry.StateNotBegun): true,
	}
	// the reasons of rows about a hub, and other states of a follower
	for _, s := range []string{follow.Fork, follow.Rollback, follow.Unsound, follow.Behind, follow.Stale, follow.Waiting} {
		want[kindState+" "+s] = true
	}
	for _, r := range n.Refusals() {
		want[kindProblem+" "+r.Reason] = true
	}
	for code := range exitCodes(t) {
		want[kindExit+" "+code] = true
	}
	shown, err := n.Metrics().Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range shown {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "readyz_degraded" && l.GetName() == "cause" {
					key, _, _ := strings.Cut(l.GetValue(), ":")
					want[kindReady+" "+key] = true
				}
			}
		}
	}
	if len(want) < 140 {
		t.Errorf("only %d codes are known", len(want))
	}
	for _, e := range explanations(explained, n.Refusals()) {
		name := e.Kind + " " + e.Code
		if e.Kind != kindProblem && !want[name] {
			t.Errorf("%s is explained twice, or does not exist", name)
		}
		delete(want, name)
		if !regexp.MustCompile(`^[a-z0-9_]+$`).MatchString(e.Code) {
			t.Errorf("%s is no word", name)
		}
		if e.Means == "" || e.Next == "" || (e.Changed == "") != (e.Kind == kindReady || e.Kind == kindState) {
			t.Errorf("%s: %+v lacks a member", name, e)
		}
	}
	for name := range want {
		t.Errorf("%s has no explanation in explain.txt", name)
	}
}

// The tables of refusals are complete: each row says what it means and what to do next, no two rows
// of a table are for the same reason and cause, and each row is reached by an error of its service.
func TestOneTableOfRefusals(t *testing.T) {
	reached := map[string]refusal.Table{}
	for _, r := range wired(t).Refusals() {
		reached[r.Service] = append(reached[r.Service], r.Row)
		reached["shared"] = append(reached["shared"], refusal.Row{Reason: r.Reason, Cause: r.Cause})
	}
	tables := maps.Clone(cli.Refusals)
	tables["shared"] = refusal.Shared
	for service, table := range tables {
		for i, row := range table {
			name := service + ": " + row.Reason + " " + row.Cause
			if row.Means == "" || row.Changed == "" || row.Next == "" || row.Title == "" {
				t.Errorf("%s lacks a member: %+v", name, row)
			}
			same := func(o refusal.Row) bool { return o.Reason == row.Reason && o.Cause == row.Cause }
			if slices.ContainsFunc(table[:i], same) {
				t.Errorf("%s is there twice", name)
			}
			if service == "shared" {
				row = refusal.Row{Reason: row.Reason, Cause: row.Cause} // a service spells the others
			}
			if !slices.Contains(reached[service], row) {
				t.Errorf("%s: no error reaches it", name)
			}
		}
	}
}

// exitCodes returns the values of all constants of the program whose names begin with Exit.
func exitCodes(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, dir := range []string{"..", "../../../httpapi"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				spec, ok := n.(*ast.ValueSpec)
				for i := 0; ok && i < len(spec.Values); i++ {
					value, literal := spec.Values[i].(*ast.BasicLit)
					if literal && value.Kind == token.INT && regexp.MustCompile(`^[Ee]xit[A-Z]`).MatchString(spec.Names[i].Name) {
						out[value.Value] = true
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// The explanations name keys of the configuration that exist.
func TestExplanationsNameKeys(t *testing.T) {
	_, entries, err := config.Explain(config.LoadOptions{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]bool{}
	for _, e := range entries {
		section, _, _ := strings.Cut(e.Key, ".")
		sections[section] = true
	}
	for _, m := range regexp.MustCompile(`([a-z_]+)\.([a-z_]+(?:\.[a-z_]+)*)`).FindAllStringSubmatch(explained, -1) {
		known := slices.ContainsFunc(entries, func(e config.Entry) bool { return e.Key == m[0] })
		if sections[m[1]] && !known {
			t.Errorf("there is no key %s", m[0])
		}
	}
}

// A code is found by its reason in any case, its type, its number, and as a key of a
// service.
func TestExplainFindsCodes(t *testing.T) {
	all := explanations(explained, wired(t).Refusals())
	for _, tt := range []struct{ code, want string }{
		{"nonce_gap", "problem nonce_gap"},
		{"INSUFFICIENT_FUNDS", "problem insufficient_funds, problem insufficient_funds"},
		{"urn:ronbox:problem:wallet:nonce_gap", "problem nonce_gap"},
		{"urn:ronbox:problem:edge:nonce_gap", ""}, // the edge has no nonces
		{"edge_cas_full", ""},
		{"74", "exit 74"},
		{"fork_guard", "ready fork_guard"},
		{"registry.fork_guard", "ready fork_guard"},
		{"breaker:ledger", "ready breaker"},
		{"not_begun", "state not_begun"},
		{"wallet.task:worker", "ready task"},
		{"99", ""},
		{"", ""},
	} {
		var got []string
		for _, e := range explanationsOf(all, tt.code) {
			got = append(got, e.Kind+" "+e.Code)
		}
		if have := strings.Join(got, ", "); have != tt.want {
			t.Errorf("%s: %q, want %q", tt.code, have, tt.want)
		}
	}
	for code, want := range map[string]string{
		"insuficient_funds":                   "did you mean insufficient_funds?",
		"urn:ronbox:problem:wallet:nonce_gab": "did you mean nonce_gap?",
		"409":                                 "is an HTTP status",
		"urn:ronbox:problem:cli:usage":        "details.exit",
		"zzzzzzzzzzzz":                        "lists all codes",
	} {
		if err := unexplained(all, code); !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", code, err, want)
		}
	}
	for _, by := range explanationsOf(all, "urn:ronbox:problem:wallet:busy")[0].Answers {
		if by.Service != "wallet" {
			t.Errorf("the type of the wallet has the answers of the %s", by.Service)
		}
	}
}
