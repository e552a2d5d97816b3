package document_test

import (
	"testing"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	registryapi "ronbox/httpapi/wire/registry"
	"ronbox/store"
)

// Each reason of a refusal has its row in the table that answers are made from.
func TestReasonsHaveWords(t *testing.T) {
	t.Parallel()
	for _, reason := range document.Reasons() {
		if row := registryapi.Refusals.Find(reason, ""); row == nil || row.Retry {
			t.Errorf("%s: the table of refusals has %+v", reason, row)
		}
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{record.ErrHardLimit, "hard_limit"}, {&record.RevokedKeyError{}, "revoked_key"},
		{&document.PendingLimitError{}, "pending_limit"},
		{&document.StateError{}, "conflict"}, {&document.NotReadyError{}, ""}, {store.ErrFull, ""},
	} {
		if got := document.Reason(tt.err); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
}
