package httpapi

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"ronbox/engines/ledger/record"
	"ronbox/httpapi/wire"
)

const codesFile = "../testdata/golden/codes.md"

const codesHead = `# Problem codes
What a refusal says of itself, as callers meet it. ` + "`reason`" + ` is the label of ` + "`rejected_total`" + ` too; what is retryable may succeed later as
the same request, with the same Idempotency-Key. Made by ` + "`make golden`" + ` from the answers themselves.
`

// codeRow is one kind of refusal as it was answered.
type codeRow struct {
	code, reason, when string
	status             int
	retry              bool
}

func rowOf(p *wire.Problem) codeRow {
	return codeRow{p.Code, p.Reason, p.Title, p.Status, p.Retryable}
}

// walletCodes are the answers of the wallet to every case there is, and to every rule of the ledger.
func walletCodes(t *testing.T) (out []codeRow) {
	cases := slices.Concat(badCases(), deniedCases(), limitCases(), conflictCases(), laterCases(), gravestCases())
	for code := record.IdemConflict; code.Known(); code++ {
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
		r.reg.set(tt.err)
		p := problemIn(t, r.do(http.MethodPost, "/registry/commit/"+proposal, "", writer).Body.String())
		out = append(out, rowOf(&p))
	}
	return out
}

func codesTable(title string, rows []codeRow) string {
	slices.SortFunc(rows, func(a, b codeRow) int {
		return cmp.Or(cmp.Compare(a.code, b.code), cmp.Compare(a.status, b.status), cmp.Compare(a.reason, b.reason), cmp.Compare(a.when, b.when))
	})
	var out strings.Builder
	fmt.Fprintf(&out, "\n## %s\n| code | status | reason | retryable | when |\n|---|---|---|---|---|\n", title)
	for _, r := range slices.Compact(rows) {
		fmt.Fprintf(&out, "| `%s` | %d | `%s` | %s | %s |\n", r.code, r.status, r.reason, map[bool]string{true: "yes", false: "no"}[r.retry], r.when)
	}
	return out.String()
}

// The table of codes is what callers are told, every kind of refusal that there is is in it, and no spelling of the one
// part is one of the other.
func TestCodesGolden(t *testing.T) {
	wallet, other := walletCodes(t), otherCodes(t)
	titles := map[string]bool{}
	for _, r := range slices.Concat(wallet, other) {
		titles[r.when] = true
	}
	for _, r := range append(problemRows(), internalRow()) {
		if !titles[r.title] {
			t.Errorf("%q: no case meets it", r.title)
		}
	}
	for _, r := range wallet {
		if strings.ToUpper(r.code) != r.code {
			t.Errorf("%s is no code of the wallet", r.code)
		}
	}
	got := codesHead + codesTable("The wallet and the ledger: every route under /v1", wallet) + codesTable("The registry and the node", other)
	if *update {
		if err := os.WriteFile(codesFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(codesFile); err != nil || string(want) != got {
		t.Errorf("%s is not what is answered (%v): run `make golden` and read the diff", codesFile, err)
	}
}
