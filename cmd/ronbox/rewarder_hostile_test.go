package main

import (
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines"
	"ronbox/engines/rewarder"
	"ronbox/engines/rewarder/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// callRaw sends a body unchanged and returns the refusal, or nil if the request was accepted.
func callRaw(t *testing.T, c *apiClient, method, path, kind, body string) *wire.Problem {
	t.Helper()
	k := client.Call{Method: method, Path: path, Header: http.Header{"Content-Type": {kind}}}
	if body != "" {
		k.Body = []byte(body)
	}
	_, err := c.Do(t.Context(), k)
	p, ok := errors.AsType[*wire.Problem](err)
	if err != nil && !ok {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return p
}

// An invalid request to the rewarder is refused with a 4xx status that names the member, the
// parameter or the row. The node still accepts valid requests.
func TestHostileRewarder(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	b := newBox(t)
	p := b.start(t)
	c := b.client(t)
	must(t, nil, b.args("wallet", "issue", "pool:protocol", "1000", "-q")...)
	raw, err := cli.ReadFile("../../testdata/rewarder/policy.json", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	policy := string(raw)
	keyFile, err := cli.ReadFile(filepath.Join(b.dir, config.PolicyKeyName), 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	key, err := record.ParseKey(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := record.NewKey(strings.NewReader(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	put := func(body string, by *record.Key) string {
		doc, err := record.ParsePolicy([]byte(body))
		sigs := []record.Signature{}
		if err == nil && by != nil {
			sigs = append(sigs, by.Sign(doc.Hash()))
		}
		out, err := json.Marshal(sigs)
		if err != nil {
			t.Fatal(err)
		}
		return `{"body":` + body + `,"signatures":` + string(out) + `}`
	}
	changed := func(old, new string) string {
		if !strings.Contains(policy, old) {
			t.Fatalf("%s is not in the policy", old)
		}
		return strings.Replace(policy, old, new, 1)
	}
	const kind, lines = "application/json", "application/x-ndjson"
	open := `{"epoch_id":"e","asset":"ron","pool_minor":"10","metrics":["requests"],"account":"pool:protocol"}`
	if p := callRaw(t, c, http.MethodPut, "/rewarder/policy/flights", kind, put(policy, key)); p != nil {
		t.Fatal(p)
	}
	u, err := c.Open(
		t.Context(),
		rewarder.OpenInput{
			EpochID:   "e",
			Asset:     "ron",
			PoolMinor: engines.AmountOf(0, 10),
			Metrics:   []string{"requests"},
			Account:   "pool:protocol",
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	parts := "/rewarder/inputs/" + u.ID.String() + "/parts/0"
	row := func(actor, qty string) string {
		return `{"actor":"` + actor + `","metric":"requests","qty":` + qty + "}\n"
	}
	zero := "b3:" + strings.Repeat("0", 64)
	compute := `{"inputs_cid":"` + zero + `","policy_id":"flights","policy_hash":"` + zero + `"}`
	for _, tt := range []struct {
		name, method, path, kind, body string
		status                         int
		names                          string // expected in details.field, or else in the text
	}{
		{"unknown member", "PUT", "/rewarder/policy/flights", kind,
			put(changed(`"mode":"share"`, `"mode":"share","x":"y"`), nil), 400, "x"},
		{"unknown member beside", "PUT", "/rewarder/policy/flights", kind,
			`{"body":{},"signatures":[],"tenant":"other"}`, 400, "tenant"},
		{"float", "PUT", "/rewarder/policy/flights", kind, put(changed(`"num":"1"`, `"num":1.5`), nil), 400, "num"},
		{"a number that is none", "PUT", "/rewarder/policy/flights", kind,
			put(changed(`"num":"1"`, `"num":"1.5"`), nil), 400, "num"},
		{"negative", "PUT", "/rewarder/policy/flights", kind, put(changed(`"num":"1"`, `"num":"-1"`), nil), 400, "num"},
		{"leading zero", "PUT", "/rewarder/policy/flights", kind, put(changed(`"num":"1"`, `"num":"01"`), nil), 400,
			"num"},
		{"2^128", "PUT", "/rewarder/policy/flights", kind,
			put(changed(`"5000000"`, `"340282366920938463463374607431768211456"`), nil), 400, "pool_max_minor"},
		{"a later mode", "PUT", "/rewarder/policy/flights", kind,
			put(changed(`"mode":"share"`, `"mode":"tariff"`), nil), 400, "mode"},
		{"no signature", "PUT", "/rewarder/policy/flights", kind, put(policy, nil), 400, "signatures"},
		{"a stranger's signature", "PUT", "/rewarder/policy/flights", kind, put(policy, foreign), 400, "signatures"},
		{"another tenant's", "PUT", "/rewarder/policy/flights", kind,
			put(changed(`"tenant":"default"`, `"tenant":"other"`), key), 400, "tenant"},
		{"another id", "PUT", "/rewarder/policy/other", kind, put(policy, key), 400, "id"},
		{"other bytes for an id", "PUT", "/rewarder/policy/flights", kind,
			put(changed(`"version":"1.0.0"`, `"version":"1.0.1"`), key), 409, "policy"},
		{"an id with a slash", "PUT", "/rewarder/policy/a%2Fb", kind, put(policy, key), 400, "policy"},

		{"unknown member of open", "POST", "/rewarder/inputs", kind,
			strings.Replace(open, `"asset"`, `"x":"y","asset"`, 1), 400, "x"},
		{"pool as a number", "POST", "/rewarder/inputs", kind, strings.Replace(open, `"10"`, `10`, 1), 400,
			"pool_minor"},
		{"pool of 2^128", "POST", "/rewarder/inputs", kind,
			strings.Replace(open, `"10"`, `"340282366920938463463374607431768211456"`, 1), 400, "pool_minor"},
		{"pool with a leading zero", "POST", "/rewarder/inputs", kind, strings.Replace(open, `"10"`, `"010"`, 1), 400,
			"pool_minor"},
		{"epoch with a slash", "POST", "/rewarder/inputs", kind, strings.Replace(open, `"e"`, `"a/b"`, 1), 400,
			"epoch_id"},
		{"unsorted metrics", "POST", "/rewarder/inputs", kind,
			strings.Replace(open, `["requests"]`, `["requests","bytes_stored"]`, 1), 400, "metrics"},
		{"an asset that is none", "POST", "/rewarder/inputs", kind, strings.Replace(open, `"ron"`, `"RON"`, 1), 400,
			"asset"},

		{"qty as a number", "PUT", parts, lines, row("a", "1"), 400, "qty"},
		{"qty as a float", "PUT", parts, lines, row("a", `"1.5"`), 400, "qty"},
		{"negative qty", "PUT", parts, lines, row("a", `"-1"`), 400, "qty"},
		{"qty with a leading zero", "PUT", parts, lines, row("a", `"01"`), 400, "qty"},
		{"qty of 2^64", "PUT", parts, lines, row("a", `"18446744073709551616"`), 400, "qty"},
		{"rows twice", "PUT", parts, lines, row("a", `"1"`) + row("a", `"1"`), 400, "line 2"},
		{"unsorted rows", "PUT", parts, lines, row("b", `"1"`) + row("a", `"1"`), 400, "line 2"},
		{"unknown member of a row", "PUT", parts, lines, `{"actor":"a","metric":"requests","qty":"1","x":"y"}` + "\n",
			400, "x"},
		{"another metric", "PUT", parts, lines, `{"actor":"a","metric":"bytes_stored","qty":"1"}` + "\n", 400,
			"metric"},
		{"who pays as an actor", "PUT", parts, lines, row("pool:protocol", `"1"`), 400, "actor"},
		{"an account of the ledger", "PUT", parts, lines, row("sys:issue:ron", `"1"`), 400, "actor"},
		{"CSV without a header", "PUT", parts + "/csv", "text/csv", "a,requests,1\n", 400, "line 1"},
		{"CSV out of order", "PUT", parts + "/csv", "text/csv", "actor,metric,qty\nb,requests,1\na,requests,1\n", 400,
			"line 3"},
		{"a part ahead", "PUT", strings.TrimSuffix(parts, "0") + "1", lines, row("a", `"1"`), 409, "part"},
		{"no such upload", "PUT", "/rewarder/inputs/" + zero + "/parts/0", lines, row("a", `"1"`), 404, ""},
		{"no upload at all", "PUT", "/rewarder/inputs/x/parts/0", lines, row("a", `"1"`), 404, ""},
		{"more than a part", "PUT", parts, lines, strings.Repeat(row("a", `"1"`), 40_000), 413, ""},
		{"a part of another type", "PUT", parts, "text/plain", row("a", `"1"`), 415, ""},

		{"unknown member of compute", "POST", "/rewarder/epochs/e/compute", kind,
			strings.Replace(compute, `{`, `{"dry_run":true,`, 1), 400, "dry_run"},
		{"inputs that are none", "POST", "/rewarder/epochs/e/compute", kind, strings.Replace(compute, zero, "b3:0", 1),
			400, "inputs_cid"},
		{"a policy hash that is none", "POST", "/rewarder/epochs/e/compute", kind, compute, 400, "policy_hash"},
		{"epoch with a slash in the path", "POST", "/rewarder/epochs/a%2Fb/compute", kind, compute, 400, "epoch"},
		{"epoch of dots", "GET", "/rewarder/epochs/..%2F..", "", "", 400, "path"},
		{"no epoch", "GET", "/rewarder/epochs/none", "", "", 404, ""},
		{"a page of none", "GET", "/rewarder/epochs?limit=0", "", "", 400, "limit"},
		{"a filter that is none", "GET", "/rewarder/epochs?state=x", "", "", 400, "state"},
		{"proof of nobody", "GET", "/rewarder/epochs/none/proof?actor=a", "", "", 404, ""},
	} {
		got := callRaw(t, c, tt.method, tt.path, tt.kind, tt.body)
		if got == nil {
			t.Errorf("%s: it is taken", tt.name)
			continue
		}
		field, _ := got.Details["field"].(string)
		what, _ := got.Details["what"].(string)
		if got.Status != tt.status || !strings.Contains(field+" "+what+" "+got.Detail, tt.names) ||
			got.Service != "rewarder" {
			t.Errorf("%s: %d %v, field %q; want %d that names %s", tt.name, got.Status, got, field, tt.status, tt.names)
		}
	}
	if got := callRaw(t, c, http.MethodPut, parts, lines, row("a", `"1"`)); got != nil {
		t.Errorf("after all that a right part is refused: %v", got)
	}
	in, err := c.Seal(t.Context(), u.ID)
	if err != nil {
		t.Fatal(err)
	}
	policyHash, err := c.Policy(t.Context(), "flights")
	if err != nil {
		t.Fatal(err)
	}
	right := rewarder.ComputeRequest{InputsCID: in.InputsCID, PolicyID: "flights", PolicyHash: policyHash.Hash}
	for name, want := range map[string]struct {
		epoch string
		ask   rewarder.ComputeRequest
		field string
	}{
		"another epoch's usage": {"other", right, "inputs"},
		"another policy's hash": {"e", rewarder.ComputeRequest{InputsCID: right.InputsCID, PolicyID: "flights",
			PolicyHash: in.LedgerCID}, "policy_hash"},
	} {
		err := computed(t, c, want.epoch, want.ask)
		p, ok := errors.AsType[*wire.Problem](err)
		if !ok || p.Status/100 != 4 || !strings.Contains(p.Error(), strings.Split(want.field, "_")[0]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := computed(t, c, "e", right); err != nil {
		t.Errorf("the right run is refused: %v", err)
	}
	until(t, "it is paid", func() bool {
		r, err := c.Epoch(t.Context(), "e")
		return err == nil && r.State == rewarder.Settled
	})
	p.stop(t)
}

// stop stops the node in order.
func (p *process) stop(t testing.TB) {
	t.Helper()
	if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Errorf("the node ended with %d\n%s", code, p.stderr)
	}
}
