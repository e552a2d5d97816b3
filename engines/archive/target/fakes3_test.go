package target_test

import (
	"cmp"
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/engines/archive/target"
)

// fakeS3 is an S3 server with one bucket and faults.
type fakeS3 struct {
	mu      sync.Mutex
	objects map[string]fakeObject
	calls   []string // METHOD key
	perPage int      // names in an answer to a list
	// fault is called before each request. It reports true if it has answered.
	fault func(n int, w http.ResponseWriter, r *http.Request) bool
	// after is called after a PUT that has succeeded, instead of the answer.
	after      func(w http.ResponseWriter)
	cut        int64    // bytes of a body that are read before the connection is closed; 0: all
	overwrites bool     // If-None-Match is ignored
	forgets    bool     // a list begins at the first name again
	hidden     []string // keys that a list does not show yet
	key        string   // the access key that is known; "": any
	stop       func()
}

type fakeObject struct {
	body []byte
	at   time.Time
}

const (
	accessKey = "PLANTEDACCESSKEY0001"
	secretKey = "planted/secret+key/0002"
	token     = "planted-session-token-0003"
)

// credentialsFile writes a file of an access key.
func credentialsFile(t testing.TB, path, access string) string {
	t.Helper()
	text := "# keys\n[other]\naws_access_key_id = no\n[ default ]\nAWS_ACCESS_KEY_ID=" + access +
		"\naws_secret_access_key = " + secretKey + "\naws_session_token = " + token + "\nregion = x\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// onFake returns a fake server and a target below a prefix of its bucket.
func onFake(t testing.TB) (target.Target, *fakeS3) {
	t.Helper()
	f := &fakeS3{objects: map[string]fakeObject{}, perPage: 3}
	srv := quiet(httptest.NewUnstartedServer(f))
	srv.Start()
	t.Cleanup(srv.Close)
	f.stop = srv.Close
	file := credentialsFile(t, filepath.Join(t.TempDir(), "credentials"), accessKey)
	d, err := target.Parse("s3://bucket/some/where", target.Server{
		Endpoint: srv.URL, Region: "us-east-1", Credentials: func() string { return file },
	})
	if err != nil {
		t.Fatal(err)
	}
	return d, f
}

// set changes a fault between requests.
func (f *fakeS3) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// seen returns how often a method was called, and for which keys.
func (f *fakeS3) seen(method string) (keys []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if key, ok := strings.CutPrefix(c, method+" "); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

func (f *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, ours := strings.CutPrefix(r.URL.Path, "/bucket/")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut > 0 && r.Method == http.MethodPut {
		_, _ = io.CopyN(io.Discard, r.Body, f.cut)
		drop(w)
		return
	}
	body, err := io.ReadAll(r.Body)
	f.calls = append(f.calls, r.Method+" "+key)
	auth := r.Header.Get("Authorization")
	switch {
	case err != nil:
		return
	case f.fault != nil && f.fault(len(f.calls), w, r):
	case !ours:
		refuse(w, http.StatusNotFound, "NoSuchBucket", "")
	case !strings.Contains(auth, "AWS4-HMAC-SHA256") || !strings.Contains(auth, "/us-east-1/s3/"),
		f.key != "" && !strings.Contains(auth, "Credential="+f.key+"/"):
		refuse(w, http.StatusForbidden, "InvalidAccessKeyId", auth)
	case r.Method == http.MethodPut:
		f.put(w, r, key, body)
	case r.Method == http.MethodDelete:
		delete(f.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case key == "":
		f.list(w, r)
	default:
		o, there := f.objects[key]
		if !there {
			refuse(w, http.StatusNotFound, "NoSuchKey", "")
			return
		}
		w.Header().Set("ETag", `"x"`)
		w.Header().Set("Last-Modified", o.at.UTC().Format(http.TimeFormat))
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(o.body)))
	}
}

// refuse answers with an error, which repeats what the server has seen.
func refuse(w http.ResponseWriter, status int, code, echo string) {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>it was %s</Message></Error>", code, echo)
}

func (f *fakeS3) put(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	sum := md5.Sum(body)
	_, there := f.objects[key]
	switch {
	case int64(len(body)) != r.ContentLength:
		refuse(w, http.StatusBadRequest, "IncompleteBody", "")
	case r.Header.Get("Content-Md5") != base64.StdEncoding.EncodeToString(sum[:]):
		refuse(w, http.StatusBadRequest, "BadDigest", "")
	case there && r.Header.Get("If-None-Match") == "*" && !f.overwrites:
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed", "")
	default:
		f.objects[key] = fakeObject{body, time.Now()}
		if f.after != nil {
			f.after(w)
			return
		}
		w.Header().Set("ETag", `"x"`)
	}
}

func (f *fakeS3) list(w http.ResponseWriter, r *http.Request) {
	type content struct {
		Key          string
		LastModified time.Time
		Size         int
	}
	var out struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string
		Contents              []content
	}
	q := r.URL.Query()
	after := cmp.Or(q.Get("continuation-token"), q.Get("start-after"))
	if f.forgets {
		after = ""
	}
	for _, key := range slices.Sorted(maps.Keys(f.objects)) {
		if !strings.HasPrefix(key, q.Get("prefix")) || key <= after || slices.Contains(f.hidden, key) {
			continue
		}
		if len(out.Contents) == cmp.Or(f.perPage, 1000) {
			out.IsTruncated, out.NextContinuationToken = true, out.Contents[len(out.Contents)-1].Key
			break
		}
		o := f.objects[key]
		out.Contents = append(out.Contents, content{key, o.at, len(o.body)})
	}
	_ = xml.NewEncoder(w).Encode(out)
}

// quiet drops the server's log.
func quiet(srv *httptest.Server) *httptest.Server {
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	return srv
}
