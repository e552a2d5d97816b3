package client_test

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ronbox/httpapi/client"
	nodeapi "ronbox/httpapi/wire/node"
)

// secure serves https and gives its URL and a file with its certificate.
func secure(t *testing.T, c *tls.Config) (url, caFile string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, `{"phase":"Running"}`)
	}))
	srv.TLS, srv.Config.ErrorLog = c, log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	caFile = filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(caFile, block, 0o600); err != nil {
		t.Fatal(err)
	}
	return srv.URL, caFile
}

func TestTLS(t *testing.T) {
	url, ca := secure(t, nil)
	old, oldCA := secure(t, &tls.Config{MaxVersion: tls.VersionTLS12})
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	for _, tt := range []struct {
		doc, url, ca string
		want         string // of the error, "" for none
	}{
		{"a certificate of the file", url, ca, ""},
		{"a certificate of nobody", url, "", "unknown authority"},
		{"another name", strings.Replace(url, "127.0.0.1", "localhost", 1), ca, "valid for"},
		{"an older TLS", old, oldCA, "protocol version"},
		{"no TLS", strings.Replace(plain.URL, "http:", "https:", 1), ca, "TLS"},
	} {
		c, err := client.New(client.Options{URL: tt.url, CAFile: tt.ca})
		if err != nil {
			t.Fatal(err)
		}
		s, err := nodeapi.NewClient(c).Status(t.Context())
		c.Close()
		if tt.want == "" && (err != nil || s.Phase != "Running") {
			t.Errorf("%s: %+v, %v", tt.doc, s, err)
		}
		if tt.want != "" && (!errors.Is(err, client.ErrNotReachable) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: err = %v, want %q", tt.doc, err, tt.want)
		}
	}
}

func TestCAFilesThatAreNone(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{empty, empty + ".none"} {
		if _, err := client.New(client.Options{URL: "https://x", CAFile: file}); err == nil ||
			!strings.Contains(err.Error(), file) {
			t.Errorf("err = %v, want one that names %s", err, file)
		}
	}
}
