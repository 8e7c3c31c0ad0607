//go:build unix

package servers

import (
	"context"
	"embed"
	"os"
	"path/filepath"
)

// Kind is a server program at a pinned version.
type Kind struct {
	// Name and Version identify the program, for people and in the cache folder.
	Name, Version string
	// Durable says whether data remains after [Server.Stop] and [Server.Kill].
	Durable bool

	// install puts the program at that version into dir, which is empty.
	install func(ctx context.Context, dir, version string) error
	// command returns how to run the program in dir, with its data in data, at addr
	// (host:port). env is added to the environment.
	command func(dir, data, addr string) (argv, env []string)
	// Credentials that the server accepts. They protect only a temporary directory on
	// loopback.
	access, secret string
	// api is set for a server that does not speak S3.
	api *api
}

func (k *Kind) String() string { return k.Name }

const (
	access = "fencepost"
	secret = "fencepost-secret"
)

// VersityGW is Versity's S3 gateway to a directory. Its lock files stay on here, because
// it is not atomic without them.
var VersityGW = &Kind{
	Name:    "versitygw",
	Version: "v1.8.0",
	Durable: true,
	install: goInstall("github.com/versity/versitygw/cmd/versitygw"),
	command: func(dir, data, addr string) (argv, env []string) {
		return []string{
			filepath.Join(dir, "versitygw"),
			"--port", addr, "--access", access, "--secret", secret, "--keep-alive", "--quiet",
			"posix", data,
		}, nil
	},
	access: access, secret: secret,
}

// MinIO runs on one drive. It is AGPL: run, never linked.
var MinIO = &Kind{
	Name:    "minio",
	Version: "v0.0.0-20260212201848-7aac2a2c5b7c",
	Durable: true,
	install: goInstall("github.com/minio/minio"),
	command: func(dir, data, addr string) (argv, env []string) {
		return []string{
				filepath.Join(dir, "minio"), "server", "--quiet", "--address", addr, data,
			}, []string{
				"MINIO_ROOT_USER=" + access, "MINIO_ROOT_PASSWORD=" + secret,
				"MINIO_UPDATE=off", "MINIO_BROWSER=off",
			}
	},
	access: access, secret: secret,
}

// GoFakeS3 keeps all data in memory. It ignores the condition on completing a multipart
// upload.
var GoFakeS3 = &Kind{
	Name:    "gofakes3",
	Version: "v1.2.0",
	install: goInstall("github.com/johannesboyne/gofakes3/cmd/gofakes3"),
	command: func(dir, _, addr string) (argv, env []string) {
		return []string{filepath.Join(dir, "gofakes3"), "-backend", "mem", "-host", addr, "-quiet"}, nil
	},
	access: access, secret: secret,
}

// S3rver ignores If-None-Match. It exists here so that package probe can refuse it, and
// is not in [Conforming].
var S3rver = &Kind{
	Name:    "s3rver",
	Version: "3.7.1",
	Durable: true,
	install: npmInstall(s3rverFiles, "s3rver"),
	command: func(dir, data, addr string) (argv, env []string) {
		host, port := splitAddr(addr)
		return []string{
			"node", filepath.Join(dir, "node_modules", "s3rver", "bin", "s3rver.js"),
			"--directory", data, "--address", host, "--port", port, "--silent", "--no-vhost-buckets",
		}, nil
	},
	// The only credentials that it accepts.
	access: "S3RVER", secret: "S3RVER",
}

// Conforming are the servers that keep the promises that the protocol needs.
var Conforming = []*Kind{VersityGW, MinIO, GoFakeS3}

// All are the servers of this package that speak S3.
var All = append(append([]*Kind{}, Conforming...), S3rver)

// The lock file also pins s3rver's dependencies.
//
//go:embed s3rver/package.json s3rver/package-lock.json
var s3rverFiles embed.FS

// cacheRoot returns the folder for installed servers.
func cacheRoot() (string, error) {
	if dir := os.Getenv("FENCEPOST_SERVERS"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "fencepost-servers"), nil
}
