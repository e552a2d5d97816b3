package wallet

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ronbox/cmd/ronbox/cli"
)

func TestBatchFiles(t *testing.T) {
	const head = "op,from,to,asset,amount_minor\n"
	for _, tt := range []struct{ doc, in, want string }{
		{"csv", head + "transfer,alice,bob,ron,5\nburn,bob,,ron,1\n", ""},
		{"csv with quotes and more columns", "op,to,asset,amount_minor,memo\nissue,alice,ron,5,\"a, b\"\n", ""},
		{"ndjson", `{"op":"transfer","from":"alice","to":"bob","asset":"ron","amount_minor":"5"}` + "\n\n" + `{"op":"release","hold":"tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD"}`, ""},
		{"the mark of a spreadsheet", "\ufeff" + head + "transfer,alice,bob,ron,5\n", ""},
		{"the ends of lines of Windows", strings.ReplaceAll(head+"transfer,alice,bob,ron,5\n\n", "\n", "\r\n"), ""},
		{"empty lines before and between", "\n" + head + "\ntransfer,alice,bob,ron,5\n\n", ""},
		{"ndjson behind empty lines", "\ufeff\r\n \n" + `{"op":"burn","from":"bob","asset":"ron","amount_minor":"1"}`, ""},
		{"spaces alone", strings.Repeat(" ", 2*maxBatchLine), "f:1: "},
		{"a list", `[{"op":"burn"}]`, "a list is no NDJSON"},
		{"UTF-16", "\xff\xfeo\x00p\x00", "no text in UTF-8"},
		{"semicolons", "op;from;to\n", "with a comma between them"},
		{"an endless record", head + "transfer,\"" + strings.Repeat("x\n", maxBatchLine), "f:2: a record is longer"},
		{"an endless header", strings.Repeat("x", 4*maxBatchLine), "f:1: a record is longer"},
		{"nothing", "", "f: no operation"},
		{"a header alone", head, "f: no operation"},
		{"an unknown column", "op,from,too\n", `f:1: the first line names the columns: "too" is none of op,from,`},
		{"a column twice", "op,from,from\n", `f:1: the first line names the columns: "from" stands twice`},
		{"no op", "from,to\na,b\n", "f:1: the first line names the columns: op is missing"},
		{"too few fields", head + "transfer,alice\n", "f:2: 2 fields where the header has 5"},
		{"a quote left open", head + "transfer,\"alice\n", "f:2: "},
		{"an unknown op", head + "give,alice,bob,ron,5\n", `f:2: op: "give": must be issue, transfer,`},
		{"a missing member", head + "transfer,alice,,ron,5\n", "f:2: to: missing"},
		{"a member too many", head + "burn,alice,bob,ron,5\n", "f:2: to: this op has no such member"},
		{"an amount with a point", head + "transfer,alice,bob,ron,5.00\n", "f:2: amount_minor: "},
		{"an amount of nothing", head + "transfer,alice,bob,ron,0\n", "f:2: amount_minor: "},
		{"a sign", head + "transfer,alice,bob,ron,-5\n", "f:2: amount_minor: "},
		{"an account with a space", head + "transfer,al ice,bob,ron,5\n", "f:2: from: "},
		{"an asset in capitals", head + "transfer,alice,bob,RON,5\n", "f:2: asset: "},
		{"to oneself", head + "transfer,alice,alice,ron,5\n", "f:2: to: is from"},
		{"a nonce of 0", "op,from,to,asset,amount_minor,nonce\ntransfer,alice,bob,ron,5,0\n", "f:2: nonce: "},
		{"nonces here and there", "op,from,to,asset,amount_minor,nonce\ntransfer,alice,bob,ron,5,4\ntransfer,alice,bob,ron,5,\n", "f:3: nonce: line 2 of the same payer"},
		{"a time that is none", "op,from,to,asset,amount_minor,valid_until\ntransfer,alice,bob,ron,5,soon\n", "f:2: valid_until: "},
		{"a hold of a year", "op,from,to,asset,amount_minor,expires_in_s\nhold,alice,bob,ron,5,31536000\n", "f:2: expires_in_s: must be 1 to 2592000"},
		{"a long memo", "op,to,asset,amount_minor,memo\nissue,alice,ron,5," + strings.Repeat("x", 129) + "\n", "f:2: memo: "},
		{"a txid that is none", "op,hold\ncapture,tx_1\n", "f:2: hold: "},
		{"two faults", head + "give,a,b,ron,1\ntransfer,a,b,ron,x\n", "f:3: amount_minor: "},
		{"an unknown member", `{"op":"release","hold":"tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD","x":1}`, "f:1: "},
		{"no json", "{\n", "f:1: "},
		{"an endless line", `{"op":"` + strings.Repeat("x", maxBatchLine+1) + "\n", "f:1: the line is longer"},
		{"many faults", head + strings.Repeat("give,a,b,ron,1\n", 30), "and 10 more"},
	} {
		_, err := parseBatch("f", strings.NewReader(tt.in))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: err = %v, want %q", tt.doc, err, tt.want)
		}
	}
}

// CSV and NDJSON of the same operations are the same batch.
func TestBatchFormsAreOne(t *testing.T) {
	csv := "memo,op,from,to,asset,amount_minor\nx,transfer,alice,bob,ron,5\n"
	lines := `{"op":"transfer","from":"alice","to":"bob","asset":"ron","amount_minor":"5","memo":"x"}`
	var sums []string
	for _, in := range []string{csv, lines} {
		rows, err := parseBatch("f", strings.NewReader(in))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, inputDigest(rows))
	}
	if sums[0] != sums[1] {
		t.Errorf("%v", sums)
	}
}

func TestBatchStateFiles(t *testing.T) {
	plan := batchPlan{Version: stateVersion, Input: "b3:x", Mode: modeIndependent, Rows: 2}
	path := filepath.Join(t.TempDir(), "s")
	s, steps, err := openState(path, plan, nil)
	if err != nil || len(steps) != 0 {
		t.Fatalf("%v, %v", steps, err)
	}
	if _, _, err := openState(path, plan, nil); cli.Classify(err).Code != cli.ExitLocked {
		t.Errorf("a second run: %v", err)
	}
	if err := s.write(batchStep{No: 0, Rows: []span{{0, 1}}}); err != nil {
		t.Fatal(err)
	}
	s.close()
	s, steps, err = openState(path, plan, nil)
	if err != nil || len(steps) != 1 || steps[0].Rows[0] != (span{0, 1}) {
		t.Fatalf("%v, %v", steps, err)
	}
	s.close()
	other := plan
	other.Input = "b3:y"
	if _, _, err := openState(path, other, nil); cli.Classify(err).Reason != "other_batch" {
		t.Errorf("another file: %v", err)
	}
	for _, text := range []string{"precious", "op,from\na,b", "{\"a\":1}\nand more"} { // somebody's own file
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := openState(path, plan, nil)
		if is, _ := os.ReadFile(path); cli.Classify(err).Reason != "malformed" || string(is) != text {
			t.Errorf("%q became %q: %v", text, is, err)
		}
	}
	if _, _, err := openState(os.DevNull, plan, nil); cli.Classify(err).Reason != "malformed" {
		t.Errorf("no file: %v", err)
	}
	for name, text := range map[string]string{"no plan": "{}\n", "text": "hello\n", "a step that is none": `{"ronbox_batch":2,"run":"","input":"b3:x","mode":"independent","rows":2}` + "\n{\"x\":1}\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := openState(path, plan, nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	b := &batchRun{rows: make([]batchRow, 2), mode: modeIndependent}
	for name, steps := range map[string][]batchStep{
		"settled before sent": {{No: 0, Settled: true}},
		"another number":      {{No: 1}},
		"sent twice":          {{No: 0}, {No: 0}},
		"rows that are not":   {{No: 0, Rows: []span{{0, 9}}}, {No: 0, Settled: true}},
	} {
		if _, err := b.begin(steps); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A state that is taken away while its batch runs ends the run before anything more is sent: a second run would begin
// from nothing.
func TestBatchStateTakenAway(t *testing.T) {
	plan := batchPlan{Version: stateVersion, Input: "b3:x", Mode: modeIndependent, Rows: 2}
	for name, take := range map[string]func(path string) error{
		"removed":  os.Remove,
		"replaced": func(path string) error { return cli.ReplaceFile(path, []byte("x"), 0o600) },
	} {
		path := filepath.Join(t.TempDir(), "s")
		s, _, err := openState(path, plan, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := take(path); err != nil {
			t.Fatal(err)
		}
		if err := s.write(batchStep{}); cli.Classify(err).Reason != "state_gone" {
			t.Errorf("%s: %v", name, err)
		}
		s.close()
	}
}

// A state that cannot be written ends the run, and nobody is told to name another: that would pay again.
func TestBatchStateNotWritten(t *testing.T) {
	full := func() error { return &os.PathError{Op: "write", Path: "s", Err: syscall.ENOSPC} }
	s, _, err := openState(filepath.Join(t.TempDir(), "s"), batchPlan{Version: stateVersion}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	s.sync = full
	if v := cli.Classify(s.write(batchStep{})); v.Code != cli.ExitFailed || !strings.Contains(v.Next, "run the same command again") {
		t.Errorf("%+v", v)
	}
}

func FuzzBatchFile(f *testing.F) {
	f.Add("op,from,to,asset,amount_minor\ntransfer,alice,bob,ron,5\n")
	f.Add(`{"op":"transfer","from":"alice","to":"bob","asset":"ron","amount_minor":"5"}` + "\n")
	f.Fuzz(func(t *testing.T, in string) {
		rows, err := parseBatch("f", strings.NewReader(in))
		if err != nil {
			return
		}
		for i := range rows {
			if _, err := newBatchRow(rows[i].line, rows[i].op); err != nil {
				t.Errorf("an accepted row is refused: %v", err)
			}
		}
	})
}

// A state with any lines behind its plan is refused, or leads to rows that there are, each of them waiting at most once.
func FuzzBatchState(f *testing.F) {
	f.Add(`{"no":0,"rows":[[0,3]],"nonces":{"alice":7}}` + "\n" + `{"no":0,"settled":true,"refused":[{"row":1}],"again":[[2,2]]}` + "\n" + `{"no":1,"reopened":[[1,1]]}`)
	f.Add(`{"no":0,"before":[[0,1]]}` + "\n" + `{"no":0,"rows":[[2,3]]}` + "\n" + `{"no":0,"before":[[2,3]]}`)
	f.Add(`{"no":0,"reopened":[[0,0]]}`) // a row that waits anyhow
	f.Add(`{"no":0,"rows":[[3,9]]}` + "\n" + `{"no":0,"settled":true}`)
	f.Add(`{"no":0,"rows":[[0,3]]}` + "\n" + `{"no":0,"settled":true,"refused":[{"row":1},{"row":1}]}`)
	f.Add(`{"no":0,"rows":[[0,3]]}` + "\n" + `{"no":0,"settled":true,"refused":[{"row":1}],"again":[[1,1]]}`)
	plan := batchPlan{Version: stateVersion, Mode: modeIndependent, Rows: 4}
	first, err := cli.Encode(plan)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lines := [][]byte{first}
		for line := range strings.Lines(text) {
			lines = append(lines, []byte(line))
		}
		_, steps, err := parseState("s", lines, plan, nil)
		if err != nil {
			return
		}
		_ = nothingDone(steps)
		b := &batchRun{rows: make([]batchRow, plan.Rows), mode: plan.Mode}
		if _, err := b.begin(steps); err != nil {
			return
		}
		for k, row := range b.pending {
			if row < 0 || row >= plan.Rows || k > 0 && row <= b.pending[k-1] {
				t.Fatalf("rows %v wait", b.pending)
			}
		}
		refused := refusedRows(b.out.Refused)
		if len(setOf(refused)) != len(refused) || len(setOf(slices.Concat(refused, b.pending))) != len(refused)+len(b.pending) {
			t.Fatalf("rows %v were refused, rows %v wait", refused, b.pending)
		}
	})
}
