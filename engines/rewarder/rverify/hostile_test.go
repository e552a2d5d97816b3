package rverify

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tooMuch is 2^128.
const tooMuch = "340282366920938463463374607431768211456"

func TestBadPolicies(t *testing.T) {
	good := string((&epoch{}).policyJSON())
	for _, tt := range []struct{ old, new, field string }{
		{`"mode":"share",`, `"mode":"share","x":"y",`, "policy.x"},
		{`"excess":"residual"`, `"excess":"residual","more":"1"`, "policy.caps.more"},
		{`"mode":"share",`, `"mode":"share","mode":"share",`, "policy.mode"},
		{`"mode":"share",`, ``, "policy.mode"},
		{`"excess":"residual",`, ``, "policy.caps.excess"},
		{`"mode":"share"`, `"mode":"tariff"`, "policy.mode"},
		{`"rounding":"largest_remainder"`, `"rounding":"bankers"`, "policy.rounding"},
		{`"shortfall":"quarantine"`, `"shortfall":"prorate"`, "policy.shortfall"},
		{`"mode":"transfer"`, `"mode":"issue"`, "policy.funding.mode"},
		{`"num":"1"`, `"num":1`, "policy.metrics.m.num"},
		{`"num":"1"`, `"num":1.5`, "policy.metrics.m.num"},
		{`"num":"1"`, `"num":"-1"`, "policy.metrics.m.num"},
		{`"num":"1"`, `"num":"01"`, "policy.metrics.m.num"},
		{`"num":"1"`, `"num":"1e3"`, "policy.metrics.m.num"},
		{`"num":"1"`, `"num":"18446744073709551616"`, "policy.metrics.m.num"},
		{`"num":"1"`, `"num":null`, "policy.metrics.m.num"},
		{`"num":"1"`, `"num":["1"]`, "policy.metrics.m.num.0"},
		{`"den":"1"`, `"den":"0"`, "policy.metrics.m.den"},
		{`"dust_minor":"0"`, `"dust_minor":"` + tooMuch + `"`, "policy.floors.dust_minor"},
		{`"scale":"0"`, `"scale":"19"`, "policy.scale"},
		{`"actor_max_minor":"0"`, `"actor_max_minor":"0","x":"1"`, "policy.caps.x"},
		{`"account":"pool:p"`, `"account":"sys:issue:ron"`, "policy.funding.account"},
		{`"account":""`, `"account":"rest"`, "policy.residual.account"},
		{`"mode":"retain"`, `"mode":"sink"`, "policy.residual.mode"},
		{`"tenant":"default"`, `"tenant":"Default"`, "policy.tenant"},
		{`"metrics":{"m":{"den":"1","num":"1","row_max":"0"}}`, `"metrics":{}`, "policy.metrics"},
		{`"metrics":{"m":{"den":"1","num":"1","row_max":"0"}}`, `"metrics":{"m":"1"}`, "policy.metrics.m"},
		{`{"asset"`, `["asset"`, "policy"},
	} {
		if !strings.Contains(good, tt.old) {
			t.Fatalf("%s is not in %s", tt.old, good)
		}
		_, err := ParsePolicy([]byte(strings.Replace(good, tt.old, tt.new, 1)))
		if f, ok := errors.AsType[*FieldError](err); !ok || f.Field != tt.field {
			t.Errorf("%s: %v, want one that names %s", tt.new, err, tt.field)
		}
	}
	caps := epoch{policy: map[string]string{"caps.actor_max_minor": "5", "floors.guarantee_minor": "6"}}
	if _, err := ParsePolicy(caps.policyJSON()); err == nil {
		t.Error("a cap below the guarantee is taken")
	}
	spaced := " " + strings.ReplaceAll(good, ",", " ,\n\t")
	if p, err := ParsePolicy([]byte(spaced)); err != nil || string(p.Bytes()) != good {
		t.Errorf("in another spelling: %v", err)
	}
}

func TestBadCSV(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "line 1: "}, {"actor,qty,metrics\n", `line 1: the first line names the columns: "metrics" is unknown; did you mean metric?`}, {"actor,metric\n", "line 1: "}, {"actor,metric,qty,content,more\n", "line 1: "},
		{"actor,metric,qty\na,m\n", "line 2: "}, {"actor,metric,qty\na,m,1,x\n", "line 2: "}, {"actor,metric,qty\na,m,-1\n", "line 2: qty"},
		{"actor,metric,qty\na,m,1.5\n", "line 2: qty"}, {"actor,metric,qty\na,m,01\n", "line 2: qty"}, {"actor,metric,qty\na,m,\n", "line 2: qty"},
		{"actor,metric,qty\na,m,18446744073709551616\n", "line 2: qty"}, {"actor,metric,qty\na b,m,1\n", "line 2: actor"},
		{"actor,metric,qty\nsys:issue:ron,m,1\n", "line 2: actor"}, {"actor,metric,qty\n,m,1\n", "line 2: actor"},
		{"actor,metric,qty\na,M,1\n", "line 2: metric"}, {"actor,metric,qty,content\na,m,1,x\n", "line 2: content"},
		{"actor,metric,qty\n\"a,m,1\n", "line "}, {"actor,metric,qty\na,m,18446744073709551615\na,m,1\n", "line 3: qty"},
	} {
		if _, err := ReadCSV(strings.NewReader(tt.text)); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %s…", tt.text, err, tt.want)
		}
	}
}

func TestBadRows(t *testing.T) {
	const a, b = `{"actor":"a","metric":"m","qty":"1"}`, `{"actor":"b","metric":"m","qty":"1"}`
	for _, text := range []string{
		a, a + "\n\n", b + "\n" + a + "\n", a + "\n" + a + "\n", `{"actor":"a","metric":"m","qty":1}` + "\n", `{"actor":"a","metric":"m"}` + "\n",
		`{"actor":"a","metric":"m","qty":"1","x":"y"}` + "\n", `{"metric":"m","actor":"a","qty":"1"}` + "\n", `{"actor":"a","content":"","metric":"m","qty":"1"}` + "\n",
		" " + a + "\n", a + "\r\n", `{"actor":"a","metric":"m","qty":"01"}` + "\n", "[]\n", `{"actor":"\u0061","metric":"m","qty":"1"}` + "\n",
		strings.Repeat(" ", 2*bufferSize) + "\n", strings.Repeat("x", 2*bufferSize), `{"actor":"a","metric":"m","qty":"1"}}` + "\n",
	} {
		err := readRows(strings.NewReader(text), true, func(*Row) error { return nil })
		if err == nil || !strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A folder with a changed byte (every third one is tried) or a missing file is not sound.
func TestChangedFolders(t *testing.T) {
	step := 3 // bytes
	if testing.Short() {
		step = 61
	}
	for _, name := range []string{"policy.json", "snapshot.json", "rows.ndjson", "ledger.json", "run.json", "commitment.txt"} {
		raw, err := os.ReadFile(filepath.Join(frozen, name))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(frozen)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		for i := 0; i < len(raw); i += step {
			bad := bytes.Clone(raw)
			bad[i] ^= 1 << (i % 7)
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Verify(dir)
			if f, ok := errors.AsType[*FieldError](err); !ok || f.Reason == "" {
				t.Fatalf("%s, byte %d as %q: %v", name, i, bad[i], err)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(dir); err == nil || err.Error() != name+": is missing" {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// The first differing actor is named.
func TestDifferenceIsNamed(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(frozen)); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "run.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ old, new, want string }{
		{`"amount_minor":"144787"`, `"amount_minor":"144788"`, "acct_c"}, {`"payout_minor_units":"999995"`, `"payout_minor_units":"999996"`, "payout_minor_units"},
		{`"reason":""`, `"reason":"x"`, "reason"}, {`"reason":""`, `"reason":"","z":""`, "run_key"},
	} {
		if err := os.WriteFile(filepath.Join(dir, "run.json"), bytes.Replace(raw, []byte(tt.old), []byte(tt.new), 1),
			0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(dir); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s named", tt.new, err, tt.want)
		}
	}
}

// Inputs that do not fit each other are refused.
func TestInputsMustFit(t *testing.T) {
	p, err := ParsePolicy((&epoch{}).policyJSON())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		change func(*Inputs)
		field  string
	}{
		{func(in *Inputs) { in.Usage = in.Usage[1:] }, "snapshot.rows"},
		{func(in *Inputs) { in.Usage[0].Qty = "7" }, "snapshot.rows_root"},
		{func(in *Inputs) { in.Snapshot.Metrics = nil }, "snapshot.rows_root"},
		{func(in *Inputs) { in.Policy.Tenant = "other" }, "snapshot.tenant"},
		{func(in *Inputs) { in.Policy.Asset = "gold" }, "snapshot.asset"},
		{func(in *Inputs) { in.Policy.Account = "a" }, "ledger.account"},
		{func(in *Inputs) { in.Policy.metrics = nil }, "policy.metrics"},
		{func(in *Inputs) { in.Policy.Account, in.Ledger.document["account"] = "a", "a" }, "rows"},
	} {
		u := Usage{{Actor: "a", Metric: "m", Qty: "1"}, {Actor: "b", Metric: "m", Qty: "2"}}
		in := Inputs{Policy: p, Usage: u}
		if in.Snapshot, err = u.Snapshot(&p, "e", "5"); err == nil {
			in.Ledger, err = UnseenLedger(&p, "5")
		}
		if err != nil {
			t.Fatal(err)
		}
		tt.change(&in)
		_, err := Recompute(in)
		if f, ok := errors.AsType[*FieldError](err); !ok || f.Field != tt.field {
			t.Errorf("%s: %v", tt.field, err)
		}
	}
}

// Usage that a spreadsheet saved as "CSV UTF-8" begins with a byte order mark. It is read as the
// same rows without the mark, whatever the order of the columns.
func TestUsageOfASpreadsheet(t *testing.T) {
	for _, in := range []string{
		"\ufeffactor,metric,qty\r\nxa,requests,1\r\n", "actor,metric,qty\nxa,requests,1", "qty,metric,content,actor\n1,requests,,xa\n",
	} {
		got, err := ReadCSV(strings.NewReader(in))
		if err != nil || len(got) != 1 || got[0] != (Row{Actor: "xa", Metric: "requests", Qty: "1"}) {
			t.Errorf("%q: %+v, %v", in, got, err)
		}
	}
}
