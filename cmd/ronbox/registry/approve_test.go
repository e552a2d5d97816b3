package registry

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
	"ronbox/engines/registry/record"
	registryapi "ronbox/httpapi/wire/registry"
)

// A signer that fetches the bytes to sign signs only a valid payload, and sees its content first.
func TestApproveSignsPayloadsOnly(t *testing.T) {
	k := newTestKey(t, 1)
	payload := newFakeNode(t, k).raw
	for _, tt := range []struct {
		doc    string
		served []byte
		signed bool
	}{
		{"a payload", payload, true},
		{"a payload in another spelling", append([]byte(" "), payload...), false},
		{"no payload", []byte(`{"type":"ron.registry/set/v1","version":1}`), false},
		{"no JSON", []byte("anything"), false},
	} {
		var approvals []registryapi.Approval
		srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				_, _ = rw.Write(tt.served)
				return
			}
			var a registryapi.Approval
			if raw, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(raw, &a) != nil {
				t.Errorf("%s: not an approval: %s", tt.doc, raw)
			}
			approvals = append(approvals, a)
			_, _ = io.WriteString(rw, `{"status":"accepted","approvals":1,"quorum":{"m":1,"n":1}}`)
		}))
		r := runVerb(t, "--url", srv.URL, "registry", "approve", "p_1", "--key", keyFile(t, k))
		srv.Close()
		if !tt.signed {
			if r.code != cli.ExitBad || len(approvals) != 0 {
				t.Errorf("%s: exit %d, %d approvals\n%s", tt.doc, r.code, len(approvals), r.stderr)
			}
			continue
		}
		if r.code != cli.ExitDone || len(approvals) != 1 ||
			record.VerifyApproval(record.Approval(approvals[0]), k.Signer(1), b3.Sum(payload)) != nil {
			t.Errorf("%s: exit %d, %+v\n%s", tt.doc, r.code, approvals, r.stderr)
		}
		for _, want := range []string{"test.example version 1, genesis", "1 of 1 signers", "org:test#kb active " + k.Public(), b3.Sum(payload).String()} {
			if !strings.Contains(r.stderr, want) {
				t.Errorf("%s: the signer is not shown %q:\n%s", tt.doc, want, r.stderr)
			}
		}
	}
}

// verbResult is the result of one command line.
type verbResult struct {
	code           int
	stdout, stderr string
}

// runVerb runs a command line of the registry.
func runVerb(t *testing.T, args ...string) verbResult {
	t.Helper()
	var out, errs bytes.Buffer
	a := cli.New(nil, &out, &errs, server.Build{})
	root := &cobra.Command{Use: "ronbox"}
	a.AddFlags(root)
	root.AddCommand(Command(a))
	code := a.Run(t.Context(), root, args)
	return verbResult{code, out.String(), errs.String()}
}

func keyFile(t *testing.T, k *record.Key) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a,b.key") // a comma is a character of a path
	if err := os.WriteFile(path, k.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
