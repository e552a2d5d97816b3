package target

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
)

// Server describes the S3 server of a target s3://bucket[/prefix].
type Server struct {
	Endpoint string // https://host[:port]
	Region   string
	CAFile   string // PEM certificates to trust beside the system's; "": none
	// Credentials returns the path of an AWS shared credentials file of mode 0600. It is called
	// before each request, and the file is read again once it or its path has changed.
	Credentials func() string
}

// IsS3 reports whether a URL names a target on an S3 server.
func IsS3(text string) bool { return strings.HasPrefix(text, "s3:") }

// Bucket returns the bucket and the prefix that a URL names. The prefix is "" or ends in a slash.
func Bucket(text string) (bucket, prefix string, err error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("%q is not a URL", text)
	case u.Scheme != "s3" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Port() != "":
		return "", "", fmt.Errorf("%q: want s3://bucket or s3://bucket/prefix", text)
	}
	if err := s3utils.CheckValidBucketName(u.Host); err != nil {
		return "", "", fmt.Errorf("%q: %w", text, err)
	}
	prefix = strings.Trim(u.Path, "/")
	if prefix == "" {
		return u.Host, "", nil
	}
	if path.Clean("/"+prefix) != "/"+prefix || u.Path != "/"+prefix && u.Path != "/"+prefix+"/" {
		return "", "", fmt.Errorf("%q: the prefix must be without dots and double slashes", text)
	}
	return u.Host, prefix + "/", nil
}

// CheckEndpoint returns an error for an endpoint that must not be used. One without TLS gets only
// encrypted objects, unless it is on this machine.
func CheckEndpoint(endpoint string, encrypted bool) error {
	u, err := url.Parse(endpoint)
	switch {
	case endpoint == "":
		return errors.New(`endpoint = "": want https://host[:port] of the S3 server`)
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return errors.New("endpoint: want https://host[:port], without a path and a password")
	case u.Scheme == "http" && !encrypted && !loopback(u.Hostname()):
		return fmt.Errorf("endpoint = %q: without recipients it must be https://, or on this machine", endpoint)
	}
	return nil
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}

// newS3 returns the target that a URL names on a server. It reads the CA file, and connects to
// nothing.
func newS3(text string, s Server) (Target, error) {
	bucket, prefix, err := Bucket(text)
	if err == nil {
		err = CheckEndpoint(s.Endpoint, true)
	}
	if err != nil {
		return nil, err
	}
	roots, err := trusted(s.CAFile)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(s.Endpoint)
	if err != nil {
		return nil, err
	}
	core, err := minio.NewCore(u.Host, &minio.Options{
		Creds:  credentials.New(&sharedFile{path: s.Credentials}),
		Secure: u.Scheme == "https",
		Region: s.Region,
		Transport: &http.Transport{
			DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:   10 * time.Second,
			ResponseHeaderTimeout: 5 * time.Minute, // after a request that may still wait in buffers
			MaxIdleConnsPerHost:   8,
			IdleConnTimeout:       30 * time.Second,
			DisableCompression:    true,
		},
		MaxRetries: 1,
	})
	if err != nil {
		return nil, err
	}
	return &s3Target{
		server: core, bucket: bucket, prefix: prefix,
		again: flow.Retry(pauseAfter, tries, passing),
	}, nil
}

// trusted returns the system's certificates and those of a PEM file, or nil for the system's only.
func trusted(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // the system has none
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca_file: %s holds no certificate in PEM", file)
	}
	return pool, nil
}

// answerError is an answer that is not a success. Its text repeats nothing that the server could
// have from the request.
type answerError struct {
	kind   error
	object string
	status int
	code   string // of S3, such as SlowDown; "": none
}

func (e *answerError) Error() string {
	text := fmt.Sprintf("%v: %s: the server answers %d %s", e.kind, e.object, e.status, e.code)
	if hint := hints[e.code]; hint != "" {
		text += ": " + hint
	}
	return text
}

// Unwrap returns the error of a target that the answer stands for.
func (e *answerError) Unwrap() error { return e.kind }

// hints say what to do after an answer.
var hints = map[string]string{
	"NoSuchBucket":                 "create the bucket first",
	"InvalidAccessKeyId":           "it does not know the access key of the credentials file",
	"SignatureDoesNotMatch":        "are the secret key of the credentials file and the region right?",
	"AuthorizationHeaderMalformed": "is the region right?",
	"InvalidRegion":                "is the region right?",
	"PermanentRedirect":            "is the endpoint that of the region of the bucket?",
	"TemporaryRedirect":            "is the endpoint that of the region of the bucket?",
	"RequestTimeTooSkewed":         "the clock of this machine is wrong, or that of the server",
	"ExpiredToken":                 "write new ones into the credentials file",
}

// statusOf returns the status of an answer that was not a success, or 0 if there was no answer.
func statusOf(err error) int {
	if answer, ok := errors.AsType[*answerError](err); ok {
		return answer.status
	}
	return 0
}

// passing reports whether the same call may succeed soon. A server that cannot be connected, or has
// no such bucket, is away.
func passing(err error) bool {
	return errors.Is(err, ErrUnreachable) && !upstream.IsConnect(err) && statusOf(err) != http.StatusNotFound
}

// failed returns err of a call as an error of a target.
func (s *s3Target) failed(ctx context.Context, object string, err error) error {
	answer, answered := err.(minio.ErrorResponse)
	switch {
	case err == nil, errors.Is(err, ErrDenied): // by page or readCredentials
		return err
	case answered && answer.StatusCode != 0:
		code := answer.Code
		if strings.ContainsFunc(code, func(r rune) bool { return (r|0x20) < 'a' || (r|0x20) > 'z' }) || len(code) > 64 {
			code = http.StatusText(answer.StatusCode)
		}
		return &answerError{kindOf(answer.StatusCode, code), s.where(object), answer.StatusCode, code}
	case errors.Is(context.Cause(ctx), context.Canceled):
		return context.Cause(ctx)
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%w: %s: %w", ErrUnreachable, s.where(object), err)
}

// kindOf returns the error of a target that an answer stands for.
func kindOf(status int, code string) error {
	switch code {
	case "NoSuchBucket", "RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch":
		return ErrUnreachable
	case "QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull", "InsufficientStorage":
		return ErrFull
	}
	switch status {
	case http.StatusNotFound:
		return ErrNotExist
	case http.StatusPreconditionFailed:
		return ErrExists
	case http.StatusInsufficientStorage:
		return ErrFull
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return ErrUnreachable
	}
	if status >= 300 && status < 500 || status == http.StatusNotImplemented {
		return ErrDenied
	}
	return ErrUnreachable
}
