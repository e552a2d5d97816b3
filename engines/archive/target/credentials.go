package target

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	profile        = "[default]"
	maxCredentials = 64 << 10 // bytes of a file
)

// sharedFile provides the credentials of an AWS shared credentials file. It reads the file again
// after the file or its path has changed. The lock of credentials.Credentials guards it.
type sharedFile struct {
	path func() string
	of   string      // path of the file that was read
	read os.FileInfo // of it
}

// IsExpired implements credentials.Provider. It reports whether the file must be read again.
func (f *sharedFile) IsExpired() bool {
	path := f.path()
	if f.read == nil || f.of != path {
		return true
	}
	now, err := os.Stat(path)
	return err != nil || !os.SameFile(now, f.read) || now.Size() != f.read.Size() ||
		!now.ModTime().Equal(f.read.ModTime())
}

// Retrieve implements credentials.Provider.
func (f *sharedFile) Retrieve() (credentials.Value, error) {
	path := f.path()
	f.read = nil
	v, st, err := readCredentials(path)
	if err != nil {
		return credentials.Value{}, fmt.Errorf("%w: credentials file: %w", ErrDenied, err)
	}
	f.of, f.read = path, st
	return v, nil
}

// RetrieveWithCredContext implements credentials.Provider.
func (f *sharedFile) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return f.Retrieve()
}

// readCredentials reads a file that no other user may read. An error repeats nothing of it.
func readCredentials(path string) (v credentials.Value, st os.FileInfo, err error) {
	file, err := os.Open(path)
	if err != nil {
		return v, nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if st, err = file.Stat(); err != nil {
		return v, nil, err
	}
	if mode := st.Mode(); !mode.IsRegular() || mode.Perm()&0o077 != 0 {
		return v, nil, fmt.Errorf("%s has mode %04o; it must be a file of mode 0600", path, mode.Perm())
	}
	text, err := io.ReadAll(io.LimitReader(file, maxCredentials))
	if err != nil {
		return v, nil, err
	}
	if v, err = parseCredentials(text); err != nil {
		return v, nil, fmt.Errorf("%s: %w", path, err)
	}
	return v, st, nil
}

// parseCredentials returns the credentials of the profile default.
func parseCredentials(text []byte) (v credentials.Value, err error) {
	v.SignerType = credentials.SignatureV4
	inside := false
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxCredentials+1)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "[") {
			inside = strings.Join(strings.Fields(line), "") == profile
			continue
		}
		key, value, set := strings.Cut(line, "=")
		if !inside || !set || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.ToLower(strings.TrimSpace(key)) {
		case "aws_access_key_id":
			v.AccessKeyID = value
		case "aws_secret_access_key":
			v.SecretAccessKey = value
		case "aws_session_token":
			v.SessionToken = value
		}
	}
	if err = lines.Err(); err == nil && (v.AccessKeyID == "" || v.SecretAccessKey == "") {
		err = errors.New("profile " + profile + " has no aws_access_key_id and aws_secret_access_key")
	}
	return v, err
}
