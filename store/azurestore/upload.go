package azurestore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// mark is the name in a blob's metadata under which the id of its upload stands.
const mark = "fencepostupload"

// Upload implements [store.Store]. A body of at most Options.BlockSize is one request. The
// blocks of a longer one are staged, a few at a time, and committed in one request.
func (s *Store) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	if err := store.CheckKey("upload", key); err != nil {
		return store.Info{}, err
	}
	o := *cmp.Or(opts, &store.UploadOptions{})
	size, inFlight, err := cloud.Parts(o.SizeHint, s.opts.BlockSize, blocksInFlight, maxBlocks, maxBlockSize)
	if err != nil {
		return store.Info{}, &store.Error{Op: "upload", Key: key, Kind: store.ErrInvalid, Err: err}
	}
	u := &upload{s: s, key: key, id: rand.Text(), client: s.client.NewBlockBlobClient(key), blockSize: size, inFlight: inFlight}
	if o.Create {
		u.conditions = ifAbsent()
	}
	if err = u.stage(ctx, body); err == nil {
		var info store.Info
		if info, err = u.commit(ctx); err == nil {
			return info, nil
		}
	}
	if e := (*store.Error)(nil); errors.As(err, &e) {
		return store.Info{}, e // of the body
	}
	failed := s.fail(ctx, call{op: "upload", key: key, missing: store.ErrNoBucket, create: o.Create}, err)
	if u.committing && store.OutcomeOf(failed) == store.Unknown {
		if info, found := u.find(ctx); found {
			return info, nil
		}
	}
	return store.Info{}, failed
}

type upload struct {
	s          *Store
	key, id    string
	client     *blockblob.Client
	conditions *blob.AccessConditions
	blockSize  int64
	inFlight   int

	first      []byte // all of a body of one block
	blocks     []string
	size       int64
	committing bool
}

// stage reads the body to its end, and sends its blocks if there are several.
func (u *upload) stage(ctx context.Context, body io.Reader) error {
	g, sending := errgroup.WithContext(ctx)
	g.SetLimit(u.inFlight)
	err := u.read(sending, body, func(block []byte) {
		// The ids of one blob must have equal lengths, and differ from other uploads'.
		id := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s%08d", u.id, len(u.blocks)))
		u.blocks = append(u.blocks, id)
		g.Go(func() error {
			lent := cloud.Lend(block)
			defer lent.TakeBack()
			again := policy.WithRetryOptions(sending, policy.RetryOptions{MaxRetries: cloud.PartAttempts - 1})
			_, err := u.client.StageBlock(again, id, lent, &blockblob.StageBlockOptions{TransactionalValidation: checksum(block)})
			return err
		})
	})
	sent := g.Wait()
	var bad *store.Error
	if errors.As(err, &bad) || sent == nil {
		return err
	}
	return sent
}

// read cuts the body into blocks. It keeps a body of one block and does not send it.
func (u *upload) read(ctx context.Context, body io.Reader, send func([]byte)) error {
	for last := false; !last; {
		if err := ctx.Err(); err != nil {
			return err
		}
		if len(u.blocks) == maxBlocks {
			return &store.Error{Op: "upload", Key: u.key, Kind: store.ErrTooLarge, Hint: fmt.Sprintf(
				"an upload has at most %d blocks, here of %d bytes; say the size beforehand (writer.ExpectedSize, UploadOptions.SizeHint), or raise Options.BlockSize", maxBlocks, u.blockSize)}
		}
		// The buffer grows as bytes arrive, since most uploads are smaller than a block.
		var block bytes.Buffer
		n, err := io.Copy(&block, io.LimitReader(body, u.blockSize))
		if err != nil {
			return &store.Error{Op: "upload", Key: u.key, Err: fmt.Errorf("azurestore: reading the body: %w", err)}
		}
		u.size += n
		last = n < u.blockSize
		switch {
		case len(u.blocks) == 0 && last:
			u.first = block.Bytes()
		case n > 0:
			send(block.Bytes())
		}
	}
	return nil
}

// commit makes the blob visible, in one attempt.
func (u *upload) commit(ctx context.Context) (store.Info, error) {
	u.committing = true
	id := map[string]*string{mark: &u.id}
	if len(u.blocks) == 0 {
		return u.s.put(ctx, u.key, u.first, u.conditions, id)
	}
	out, err := u.client.CommitBlockList(once(ctx), u.blocks, &blockblob.CommitBlockListOptions{AccessConditions: u.conditions, Metadata: id})
	if err != nil {
		return store.Info{}, err
	}
	if cloud.VersionOf(out.ETag) == "" {
		return store.Info{}, errNoETag
	}
	return store.Info{Key: u.key, Version: cloud.VersionOf(out.ETag), Size: u.size, LastModified: timeOf(out.LastModified), Date: timeOf(out.Date)}, nil
}

// find returns the blob, if it is there and this upload has made it.
func (u *upload) find(ctx context.Context) (store.Info, bool) {
	ctx, cancel := cloud.CleanUp(ctx)
	defer cancel()
	out, err := u.client.GetProperties(once(ctx), nil)
	if err != nil || out.ContentLength == nil || cloud.VersionOf(out.ETag) == "" {
		return store.Info{}, false
	}
	// guard:own-upload. An upload whose last request has an unknown outcome counts as uploaded only if
	// the blob has this upload's size, and its random id in the metadata.
	//
	//mutant:replace own := false => own := true
	own := false
	for name, value := range out.Metadata {
		own = own || strings.EqualFold(name, mark) && value != nil && *value == u.id
	}
	if !own || *out.ContentLength != u.size {
		return store.Info{}, false
	}
	return store.Info{Key: u.key, Version: cloud.VersionOf(out.ETag), Size: u.size, LastModified: timeOf(out.LastModified), Date: timeOf(out.Date)}, true
}
