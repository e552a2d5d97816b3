package archive

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"

	"ronbox/appliance/unit"
	"ronbox/engines/archive/target"
)

// Config is the section [archive].
type Config struct {
	Target          string   `toml:"target"`                      // file:///absolute/directory or s3://bucket/prefix; "": off
	Endpoint        string   `toml:"endpoint"`                    // of the S3 server: https://host[:port]
	Region          string   `toml:"region"`                      // of the bucket
	CAFile          string   `toml:"ca_file"`                     // PEM certificates that the S3 server may have; "": the system's
	CredentialsFile string   `toml:"credentials_file" reload:"r"` // of the S3 server, mode 0600
	Recipients      []string `toml:"recipients" reload:"r"`       // age public keys, whose identities can read the objects
	Plaintext       bool     `toml:"plaintext"`                   // objects are not encrypted; there are no recipients
	Fsync           string   `toml:"fsync" reload:"r"`            // when local files are synced: interval or always
	// longest time between two log objects while there are changes
	Every     unit.Duration `toml:"every" reload:"r"`
	BaseEvery unit.Duration `toml:"base_every" reload:"r"` // a base is due, too, if the log is larger than it
	Keep      unit.Duration `toml:"keep" reload:"r"`       // every moment of this time can be restored; 0: all is kept
	MaxLocal  unit.Size     `toml:"max_local" reload:"r"`  // of files that were not sent yet
	MaxRate   unit.Size     `toml:"max_rate" reload:"r"`   // bytes a second to the target; 0: no limit
}

// Values of Config.Fsync.
const (
	syncInterval = "interval" // every syncEvery
	syncAlways   = "always"   // before each commit
)

const day = 24 * time.Hour

// DefaultConfig returns the default configuration.
func DefaultConfig() Config {
	return Config{
		Region: "us-east-1", Recipients: []string{}, Fsync: syncInterval, Every: unit.Duration(5 * time.Second),
		BaseEvery: unit.Duration(30 * day), Keep: unit.Duration(14 * day), MaxLocal: 1 << 30,
	}
}

// maxRecipients bounds the size of the head of an encrypted payload.
const maxRecipients = 8

// On reports whether there is a target.
func (c Config) On() bool { return c.Target != "" }

// Validate returns all faults of c, joined.
func (c Config) Validate() error {
	var cipher, rate, keep, fsync error
	if c.On() {
		switch {
		case c.Plaintext && len(c.Recipients) > 0:
			cipher = errors.New("plaintext = true: there are recipients; remove one of both")
		case !c.Plaintext && len(c.Recipients) == 0:
			cipher = errors.New("recipients = []: name the key that `ronbox archive keygen` prints, " +
				"or set plaintext = true")
		}
	}
	if len(c.Recipients) > maxRecipients {
		cipher = fmt.Errorf("recipients: names %d, at most %d", len(c.Recipients), maxRecipients)
	}
	_, keys := c.recipients()
	if c.MaxRate != 0 {
		rate = unit.Within("max_rate", c.MaxRate, 16<<10, 1<<30)
	}
	if c.Keep != 0 {
		keep = unit.Between("keep", c.Keep, day, 3650*day)
	}
	if c.Fsync != syncInterval && c.Fsync != syncAlways {
		fsync = fmt.Errorf("fsync = %q: must be %s or %s", c.Fsync, syncInterval, syncAlways)
	}
	return errors.Join(c.validateTarget(), cipher, keys, fsync, rate, keep,
		unit.Between("every", c.Every, time.Second, time.Hour),
		unit.Between("base_every", c.BaseEvery, day, 365*day),
		unit.Within("max_local", c.MaxLocal, 64<<20, 1<<40),
	)
}

// validateTarget returns what is wrong with the keys of the target.
func (c Config) validateTarget() error {
	switch {
	case !c.On():
		return nil
	case !target.IsS3(c.Target):
		if _, err := target.Dir(c.Target); err != nil {
			return fmt.Errorf("target = %w", err)
		}
		return nil
	}
	var bucket, region, credentials error
	if _, _, err := target.Bucket(c.Target); err != nil {
		bucket = fmt.Errorf("target = %w", err)
	}
	if c.Region == "" {
		region = errors.New(`region = "": want that of the bucket; servers without regions take us-east-1`)
	}
	if c.CredentialsFile == "" {
		credentials = errors.New(`credentials_file = "": want a file of mode 0600, in the form of ~/.aws/credentials`)
	}
	return errors.Join(bucket, target.CheckEndpoint(c.Endpoint, len(c.Recipients) > 0), region, credentials)
}

// Server returns the S3 server of the target, with the credentials file that c names.
func (c Config) Server() target.Server {
	return target.Server{
		Endpoint: c.Endpoint, Region: c.Region, CAFile: c.CAFile,
		Credentials: func() string { return c.CredentialsFile },
	}
}

// where returns a name of the target that no other one has.
func (c Config) where() string {
	if target.IsS3(c.Target) {
		return c.Target + " at " + c.Endpoint
	}
	return c.Target
}

// Used reports whether a node whose local files are in dir may have something in the target. It is
// so if the files cannot be read.
func (c Config) Used(dir string) bool {
	f := recordFile{path: filepath.Join(dir, recordName)}
	if err := f.open(); err != nil {
		return true
	}
	r := f.read()
	was, _ := target.Dir(r.Target)
	now, _ := target.Dir(c.Target)
	return r.used() && (r.Target == c.where() || was != "" && was == now)
}

// recipients returns the public keys. An error does not repeat a private one.
func (c Config) recipients() (out []age.Recipient, err error) {
	for i, text := range c.Recipients {
		r, bad := age.ParseX25519Recipient(text)
		switch {
		case strings.HasPrefix(strings.ToUpper(strings.TrimSpace(text)), "AGE-SECRET-KEY-"):
			err = errors.Join(err, fmt.Errorf(
				"recipients: number %d is an identity, which must not be on this machine: make another one", i+1))
		case bad != nil:
			err = errors.Join(err, fmt.Errorf("recipients: number %d is not a public key age1…", i+1))
		default:
			out = append(out, r)
		}
	}
	return out, err
}
