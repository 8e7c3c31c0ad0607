package lock

// BucketKey is the key of the object of a name, below the prefix "locks".
func BucketKey(name string) string { return (&Locker{prefix: "locks"}).bucketKey(name) }
