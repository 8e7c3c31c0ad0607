package s3store_test

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/s3store"
)

func Example() {
	srv := s3stub.Start(nil) // in place of a real server
	defer srv.Close()

	ctx := context.Background()
	st, err := store.Open(ctx, "s3://bucket/orders?endpoint="+srv.URL())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = store.Create(ctx, st, "lock/1", []byte("mine"), nil)
	fmt.Println(err)
	_, err = store.Create(ctx, st, "lock/1", []byte("yours"), nil)
	fmt.Println(err)
	// Output:
	// <nil>
	// store: put "lock/1": condition not met (412): another object is there
}

// A program that has a client already brings it.
func ExampleNew() {
	client := s3.New(s3.Options{Region: "eu-central-1", BaseEndpoint: aws.String("https://s3.example.com")})
	st, err := s3store.New(client, "bucket", &s3store.Options{SSE: s3store.SSES3})
	fmt.Println(err, st.Traits().Name)
	// Output: <nil> s3://bucket
}
