package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ronbox/httpapi/console"
)

// Values of the credentials file, which nothing may repeat.
const (
	plantedKey    = "PLANTEDKEYID01234567"
	plantedSecret = "planted/secret+0123456789abcdefghijklmno"
	plantedToken  = "planted-session-token-0123456789abcdef"
)

// refusing is an S3 server that refuses everything, and repeats what it was sent where S3 does.
func refusing(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "application/xml")
	rw.WriteHeader(http.StatusForbidden)
	_, _ = fmt.Fprintf(rw, "<Error><Code>SignatureDoesNotMatch</Code><Message>The signature does not match.</Message>"+
		"<AWSAccessKeyId>%s</AWSAccessKeyId><StringToSign>%s %s</StringToSign></Error>", plantedKey,
		r.Header.Get("Authorization"), r.Header.Get("X-Amz-Security-Token"))
}

// No output of a node whose target refuses its credentials holds one of them, the key that signs, or
// an identity.
func TestArchiveHasNoSecrets(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(refusing))
	defer srv.Close()
	b := newBox(t)
	a := b.archives(t)
	file := filepath.Join(filepath.Dir(b.dir), "s3")
	text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\naws_session_token = %s\n",
		plantedKey, plantedSecret, plantedToken)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b.env = append(b.env, "RONBOX_ARCHIVE__TARGET=s3://bucket/x", "RONBOX_ARCHIVE__ENDPOINT="+srv.URL,
		"RONBOX_ARCHIVE__CREDENTIALS_FILE="+file, "RONBOX_LOG__LEVEL=trace")
	p := b.start(t)
	until(t, "the target refuses", func() bool {
		s, err := b.client(t).Archive(t.Context())
		return err == nil && s.State == "behind" && s.LastError != ""
	})
	secrets := b.archiveSecrets(t, a)
	files, _ := makeBundle(t, b, secrets) // it looks for them itself
	if config := string(files["config.txt"]); !strings.Contains(config, file) {
		t.Errorf("config.txt does not name the credentials file:\n%s", config)
	}
	var out strings.Builder
	verb := func(want bool, args ...string) {
		t.Helper()
		r := ronboxWith(t, t.Context(), b.env, "", b.args(args...)...)
		if out.WriteString(r.stdout + r.stderr); (r.code == 0) != want {
			t.Errorf("%v: exit %d\n%s%s", args, r.code, r.stdout, r.stderr)
		}
	}
	for _, form := range []string{"", "--json"} {
		form := strings.Fields(form)
		verb(true, append([]string{"archive", "status"}, form...)...)
		verb(true, append([]string{"config", "show"}, form...)...)
		verb(false, append([]string{"archive", "check"}, form...)...)
		verb(false, append([]string{"archive", "list"}, form...)...)
		verb(false, append([]string{"archive", "base"}, form...)...) // a problem
	}
	if !strings.Contains(out.String(), "archive_target") {
		t.Errorf("no problem of the target:\n%s", &out)
	}
	b.env = append(b.env, "RONBOX_ARCHIVE__RECIPIENTS="+strings.TrimSpace(identityOf(t, a)))
	verb(false, "config", "check")
	b.env = b.env[:len(b.env)-1]
	out.WriteString(b.consolePages(t, "", "operations", "cluster", "fleet"))
	if code := p.signal(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit %d", code)
	}
	out.WriteString(p.stderr.String())
	for _, secret := range secrets {
		if at := strings.Index(out.String(), secret); at >= 0 {
			t.Errorf("it holds %.12q…: …%s", secret, out.String()[max(0, at-200):at])
		}
	}
	if !strings.Contains(p.stderr.String(), "archive_behind") {
		t.Errorf("the log does not say that the target refuses:\n%s", p.stderr)
	}
}

// archiveSecrets returns what an archive keeps secret, in all spellings.
func (b *box) archiveSecrets(t testing.TB, a away) []string {
	t.Helper()
	seed, err := os.ReadFile(filepath.Join(b.dir, "archive", "archive.key"))
	if err != nil || len(seed) != 32 {
		t.Fatal(len(seed), err)
	}
	out := []string{string(seed), hex.EncodeToString(seed), base64.StdEncoding.EncodeToString(seed)}
	for _, s := range []string{plantedKey, plantedSecret, plantedToken, strings.TrimSpace(identityOf(t, a))} {
		out = append(out, s, hex.EncodeToString([]byte(s)), base64.StdEncoding.EncodeToString([]byte(s)))
	}
	return out
}

// identityOf returns the identity in the file that keygen wrote.
func identityOf(t testing.TB, a away) string {
	t.Helper()
	raw, err := os.ReadFile(a.identity)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(raw), "AGE-SECRET-KEY-")
	if at < 0 {
		t.Fatal("no identity")
	}
	return string(raw[at:])
}

// consolePages returns pages of the console.
func (b *box) consolePages(t testing.TB, names ...string) (text string) {
	t.Helper()
	link, err := console.NewLink(t.Context(), b.client(t).Client, console.Link{})
	if err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	base, _, _ := strings.Cut(link.URL, "/console/")
	c := &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(r *http.Request, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		answer, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		raw, err := io.ReadAll(answer.Body)
		if text += string(raw); err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %d, %v", r.URL, answer.StatusCode, err)
		}
	}
	enter, err := http.NewRequest(http.MethodPost, base+"/console/enter", strings.NewReader("code="+link.Code))
	if err == nil {
		enter.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	ask(enter, err)
	for _, name := range names {
		ask(http.NewRequest(http.MethodGet, base+"/console/"+name, nil))
	}
	if !strings.Contains(text, "s3://bucket/x") {
		t.Error("no page shows the archive")
	}
	return text
}
