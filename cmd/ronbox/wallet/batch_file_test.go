package wallet

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
	wallethttp "ronbox/httpapi/wallet"
	"ronbox/httpapi/wire"
	walletapi "ronbox/httpapi/wire/wallet"
)

func TestBatchFiles(t *testing.T) {
	const head = "op,from,to,asset,amount_minor\n"
	const decimal = "op,from,to,asset,amount\n"
	for _, tt := range []struct{ doc, in, want string }{
		{"csv", head + "transfer,alice,bob,ron,5\nburn,bob,,ron,1\n", ""},
		{"csv with quotes and more columns", "op,to,asset,amount_minor,memo\nissue,alice,ron,5,\"a, b\"\n", ""},
		{"ndjson", `{"op":"transfer","from":"alice","to":"bob","asset":"ron","amount_minor":"5"}` + "\n\n" + `{"op":"release","hold":"tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD"}`, ""},
		{"the mark of a spreadsheet", "\ufeff" + head + "transfer,alice,bob,ron,5\n", ""},
		{"the ends of lines of Windows", strings.ReplaceAll(head+"transfer,alice,bob,ron,5\n\n", "\n", "\r\n"), ""},
		{"empty lines before and between", "\n" + head + "\ntransfer,alice,bob,ron,5\n\n", ""},
		{"ndjson behind empty lines", "\ufeff\r\n \n" + `{"op":"burn","from":"bob","asset":"ron","amount_minor":"1"}`, ""},
		{"spaces alone", strings.Repeat(" ", 2*maxBatchLine), "no operation"},
		{"a list", `[{"op":"burn"}]`, "a list is not NDJSON"},
		{"UTF-16", "\xff\xfeo\x00p\x00", "not text in UTF-8"},
		{"semicolons", "op;from;to\n", "put a comma between them"},
		{"an endless record", head + "transfer,\"" + strings.Repeat("x\n", maxBatchLine), "stdin:2: a record is longer"},
		{"an endless header", strings.Repeat("x", 4*maxBatchLine), "stdin:1: a record is longer"},
		{"nothing", "", "stdin: no operation"},
		{"a header alone", head, "stdin: no operation"},
		{"an unknown column", "op,from,colour\n", `stdin:1: the first line names the columns: "colour" is none of op,from,`},
		{"a misspelt column", "op,from,too\n", `stdin:1: the first line names the columns: "too" is unknown; did you mean to?`},
		{"a column twice", "op,from,from\n", `stdin:1: the first line names the columns: "from" stands twice`},
		{"no op", "from,to\na,b\n", "stdin:1: the first line names the columns: op is missing"},
		{"too few fields", head + "transfer,alice\n", "stdin:2: 2 fields where the header has 5"},
		{"a quote left open", head + "transfer,\"alice\n", "stdin:2: "},
		{"an unknown op", head + "give,alice,bob,ron,5\n", `stdin:2: op: must be one of issue, transfer,`},
		{"a missing member", head + "transfer,alice,,ron,5\n", "stdin:2: to: is missing"},
		{"a member too many", head + "burn,alice,bob,ron,5\n", "stdin:2: to: is no member of this operation"},
		{"an amount with a point", head + "transfer,alice,bob,ron,5.00\n", "stdin:2: amount_minor: "},
		{"an amount of nothing", head + "transfer,alice,bob,ron,0\n", "stdin:2: amount_minor: "},
		{"a sign", head + "transfer,alice,bob,ron,-5\n", "stdin:2: amount_minor: "},
		{"a decimal amount", decimal + "transfer,alice,bob,ron,5\nburn,bob,,ron,0.01\n", ""},
		{"decimal amounts in ndjson", `{"op":"capture","hold":"` + someHold + `","amount":"3.5"}`, ""},
		{"a decimal amount with too many digits", decimal + "transfer,alice,bob,ron,12.001\n", "stdin:2: amount: ron has 2 digits after the point"},
		{"a decimal amount of nothing", decimal + "transfer,alice,bob,ron,0.00\n", "stdin:2: amount: must be above 0"},
		{"a decimal amount with a comma", decimal + "transfer,alice,bob,ron,\"12,50\"\n", "stdin:2: amount: must be digits"},
		{"a decimal amount of an unknown asset", decimal + "transfer,alice,bob,silver,5\n", "stdin:2: asset: is not declared"},
		{"a decimal amount of an unknown hold", `{"op":"capture","hold":"tx_01JD3V9T5E8Q2X7RZ4M6K0ABCE","amount":"3.5"}`, "stdin:1: hold: does not exist"},
		{"an empty decimal amount", `{"op":"burn","from":"bob","asset":"ron","amount":""}`, "stdin:1: amount: must be digits"},
		{"a decimal amount that is a number", `{"op":"burn","from":"bob","asset":"ron","amount":1.5}`, "stdin:1: amount: must be a string"},
		{"both amounts", `{"op":"burn","from":"bob","asset":"ron","amount":"1","amount_minor":"100"}`, "stdin:1: amount: stands beside amount_minor"},
		{"no amount", head + "transfer,alice,bob,ron,\n", "stdin:2: amount: is missing: give it, or amount_minor"},
		{"an amount of a release", `{"op":"release","hold":"` + someHold + `","amount":"3.5"}`, "stdin:1: amount: is no member of this operation"},
		{"an account with a space", head + "transfer,al ice,bob,ron,5\n", "stdin:2: from: "},
		{"an asset in capitals", head + "transfer,alice,bob,RON,5\n", "stdin:2: asset: "},
		{"to oneself", head + "transfer,alice,alice,ron,5\n", "stdin:2: to: must be another account than from"},
		{"a nonce of 0", "op,from,to,asset,amount_minor,nonce\ntransfer,alice,bob,ron,5,0\n", "stdin:2: nonce: "},
		{"a reference twice", "op,from,to,asset,amount_minor,reference\ntransfer,a,b,ron,5,x\ntransfer,a,b,ron,6,x\n", "stdin:3: reference: line 2 has the same one"},
		{"a nonce that is text", "op,from,to,asset,amount_minor,nonce\ntransfer,a,b,ron,5,x\n", "stdin:2: nonce: "},
		{"a memo in Latin 1", "op,to,asset,amount_minor,memo\nissue,a,ron,5,\xe9\n", "stdin:2: memo: "},
		{"the ledger's own account", head + "transfer,a,sys:once,ron,5\n", "stdin:2: accounts that begin with sys:"},
		{"a time that is none", "op,from,to,asset,amount_minor,valid_until\ntransfer,alice,bob,ron,5,soon\n", "stdin:2: valid_until: "},
		{"a hold of a year", "op,from,to,asset,amount_minor,expires_in_s\nhold,alice,bob,ron,5,31536000\n", "stdin:2: expires_in_s: must be a whole number of seconds"},
		{"a long memo", "op,to,asset,amount_minor,memo\nissue,alice,ron,5," + strings.Repeat("x", 129) + "\n", "stdin:2: memo: "},
		{"a txid that is none", "op,hold\ncapture,tx_1\n", "stdin:2: hold: "},
		{"two faults", head + "give,a,b,ron,1\ntransfer,a,b,ron,x\n", "stdin:3: amount_minor: "},
		{"an unknown member", `{"op":"release","hold":"tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD","x":1}`, "stdin:1: "},
		{"no json", "{\n", "stdin:1: "},
		{"an endless line", `{"op":"` + strings.Repeat("x", maxBatchLine+1) + "\n", "stdin:1: the line is longer"},
		{"many faults", head + strings.Repeat("give,a,b,ron,1\n", 30), "and 10 more"},
	} {
		_, err := parseBatch(tt.in)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: err = %v, want %q", tt.doc, err, tt.want)
		}
	}
}

// The reference of a row never changes, or a release would pay the rows of the one before it once
// more. A row has the same one with a decimal amount.
func TestReferencesOfRowsAreFrozen(t *testing.T) {
	const want = "batch/8b01d0b308bf556bae34f7408a2b1ebc" // as the release without decimal amounts gave it
	for _, in := range []string{
		"op,from,to,asset,amount_minor,memo\ntransfer,alice,bob,ron,1250,rent\n",
		"op,from,to,asset,amount,memo\ntransfer,alice,bob,ron,12.5,rent\n",
		`{"op":"transfer","from":"alice","to":"bob","asset":"ron","amount":"12.50","memo":"rent"}`,
	} {
		rows, err := parseBatch(in)
		if err != nil || rows[0].op.Reference != want || rows[0].op.AmountMinor != "1250" {
			t.Errorf("%s: %+v, %v, want %s", in, rows, err, want)
		}
	}
}

// A decimal amount whose decimals may still be set has no reference of its own: once they are set,
// the same row would be another payment, and the file would be paid twice.
func TestReferencesOutliveADeclaration(t *testing.T) {
	node := lister{AssetList: walletapi.AssetList{Assets: []walletapi.Asset{{Asset: "ron"}}}}
	parse := func(run, column, amount string) (batchRow, error) {
		in := "op,from,to,asset," + column + "\ntransfer,alice,bob,ron," + amount + "\n"
		a := app{cli.New(strings.NewReader(in), io.Discard, io.Discard, server.Build{})}
		rows, err := a.readBatch(t.Context(), node, "-", run)
		if err != nil {
			return batchRow{}, err
		}
		return rows[0], nil
	}
	if row, err := parse("", "amount", "12"); err == nil || !strings.Contains(err.Error(), "never set") {
		t.Errorf("decimals that were never set: %+v, %v", row, err)
	}
	if row, err := parse("may", "amount", "12"); err != nil || row.op.AmountMinor != "12" || row.op.Reference != "may/1" {
		t.Errorf("in a run with a name: %+v, %v", row, err)
	}
	if row, err := parse("", "reference,amount", "r1,12"); err != nil || row.op.Reference != "r1" {
		t.Errorf("with a reference: %+v, %v", row, err)
	}
	for decimals, amounts := range [][]string{{"12"}, {"12", "12.0"}, {"12", "12.0", "12.00"}} {
		node.AssetList.Assets[0].DecimalsSet, node.AssetList.Assets[0].Decimals = true, decimals
		want, err := parse("", "amount_minor", "12"+strings.Repeat("0", decimals))
		if err != nil {
			t.Fatal(err)
		}
		for _, amount := range amounts {
			if got, err := parse("", "amount", amount); err != nil || got.op.Reference != want.op.Reference {
				t.Errorf("%s with %d decimals: %+v, %v, want %s", amount, decimals, got, err, want.op.Reference)
			}
		}
	}
}

// A file with decimal amounts is not begun if the decimals cannot be read. Minor units need none.
func TestBatchWithoutDecimals(t *testing.T) {
	for column, want := range map[string]int{"amount": 0, "amount_minor": 1} {
		f := newFakeBank(sound)
		f.balance["a"], f.lister = 9, lister{err: &wire.Problem{Status: 403, Reason: "forbidden"}}
		j := newJob(t, "op,from,to,asset,"+column+"\ntransfer,a,b,ron,5\n", batchFlags{})
		err := j.run(t, f)
		if f.requests != want || (err == nil) != (want == 1) {
			t.Errorf("%s: %d requests, %v", column, f.requests, err)
		}
		if v := cli.Classify(err); err != nil && (v.Code != cli.ExitDenied || !strings.Contains(v.Next, "amount_minor")) {
			t.Errorf("%s: %+v", column, v)
		}
	}
}

// A batch in CSV and the same batch in NDJSON parse to the same rows.
func TestBatchFormsAreOne(t *testing.T) {
	csv := "memo,op,from,to,asset,amount_minor\nx,transfer,alice,bob,ron,5\n"
	lines := `{"op":"transfer","from":"alice","to":"bob","asset":"ron","amount_minor":"5","memo":"x"}`
	var sums []string
	for _, in := range []string{csv, lines} {
		rows, err := parseBatch(in)
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, inputDigest(rows))
	}
	if sums[0] != sums[1] {
		t.Errorf("%v", sums)
	}
}

// parseBatch parses a batch as the verb does.
func parseBatch(in string) ([]batchRow, error) {
	a := app{cli.New(strings.NewReader(in), io.Discard, io.Discard, server.Build{})}
	return a.readBatch(context.Background(), ofAssets(), "-", "")
}

func FuzzBatchFile(f *testing.F) {
	f.Add("op,from,to,asset,amount_minor\ntransfer,alice,bob,ron,5\n")
	f.Add(`{"op":"transfer","from":"alice","to":"bob","asset":"ron","amount_minor":"5"}` + "\n")
	f.Add("op,from,to,asset,amount\ntransfer,alice,bob,ron,5.00\n")
	f.Fuzz(func(t *testing.T, in string) {
		rows, err := parseBatch(in)
		if err != nil {
			return
		}
		for i := range rows {
			raw, err := json.Marshal(rows[i].op)
			if err == nil {
				_, err = wallethttp.ReadOp(raw)
			}
			if err != nil {
				t.Errorf("an accepted row is refused: %v", err)
			}
		}
	})
}
