package httpapi_test

import (
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/go-json-experiment/json"

	"ronbox/httpapi"
)

// Verbs of the operations that read, and of those that write. A new verb is added here only if
// none of these fits.
const (
	readVerbs  = "check diff export find get list preview prove resolve stream"
	writeVerbs = "accept adopt approve burn capture catch check close commit compute declare drain drop end execute extract fill " +
		"hold init install issue leave mint open pin propose publish put reindex release reload remove rescan resume retire " +
		"revoke rewrite rotate seal set sign take transfer unpin verify withdraw"
)

// The operations of the document have words for ids, of which the first is a verb.
func TestOperationsAreVerbsAndNouns(t *testing.T) {
	r := newRig(t, func(_ *httpapi.Settings, d *deps) { d.rest = true })
	var doc struct {
		Paths map[string]map[string]struct {
			ID string `json:"operationId"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(r.Document().JSON(), &doc); err != nil {
		t.Fatal(err)
	}
	reads, writes := strings.Fields(readVerbs), strings.Fields(writeVerbs)
	used := map[string]bool{}
	for path, ops := range doc.Paths {
		for method, op := range ops {
			verb, known := op.ID, writes
			if i := strings.IndexFunc(verb, unicode.IsUpper); i > 0 {
				verb = verb[:i]
			}
			if method == "get" {
				known = reads
			}
			if method == "head" || !slices.Contains(known, verb) {
				t.Errorf("%s %s is %s: the verb %q is not known", method, path, op.ID, verb)
			}
			used[verb] = true
		}
	}
	for _, verb := range slices.Concat(reads, writes) {
		if !used[verb] {
			t.Errorf("no operation has the verb %q", verb)
		}
	}
}
