//! Uploads. Large objects go in parts: nobody sees the object before the last part is there.

use super::client::{Ask, S3, text};
use super::{S3Error, S3Location, xml};
use bytes::Bytes;
use http::Method;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// Objects up to this size go in one request; parts have it, too.
const PART: u64 = 8 << 20;
/// S3 takes no more.
const MAX_PARTS: u64 = 10_000;

/// The next bytes of a file, up to the size of a part.
fn part(file: &mut File, size: u64) -> Result<Bytes, S3Error> {
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes).map_err(S3Error::Source)?;
    Ok(bytes.into())
}

impl S3 {
    /// Uploads a whole file. After a failure the object does not exist, or is the one from before.
    pub async fn put(&self, object: &S3Location, file: &mut File) -> Result<(), S3Error> {
        let length = file.seek(SeekFrom::End(0)).map_err(S3Error::Source)?;
        file.seek(SeekFrom::Start(0)).map_err(S3Error::Source)?;
        // Parts grow where ten thousand of the usual ones are not enough.
        let size = PART.max(length.div_ceil(MAX_PARTS));
        if size > 512 << 20 {
            return Err(S3Error::TooLarge(length));
        }
        if length <= size {
            let body = part(file, size)?;
            return self.send(&ask(Method::PUT, object, &[], body)).await.map(drop);
        }
        let begin = ask(Method::POST, object, &[("uploads", "")], Bytes::new());
        let (url, answer) = self.send(&begin).await?;
        let answer = text(&url, answer).await?;
        let id = xml::text(&answer, "InitiateMultipartUploadResult", "UploadId");
        let id = id.ok_or(S3Error::Answer { url, what: "it names no upload" })?;
        let uploaded = self.put_parts(object, file, size, &id).await;
        if uploaded.is_err() {
            // Parts that nobody completes cost money.
            let query = [("uploadId", id.as_str())];
            let abort = ask(Method::DELETE, object, &query, Bytes::new());
            if let Err(error) = self.send(&abort).await {
                let error = coracle_cli::causes::chain(&error);
                tracing::warn!(upload = id, %error, "cannot abort the upload");
            }
        }
        uploaded
    }

    async fn put_parts(
        &self,
        object: &S3Location,
        file: &mut File,
        size: u64,
        id: &str,
    ) -> Result<(), S3Error> {
        let mut list = String::from("<CompleteMultipartUpload>");
        for number in 1.. {
            let body = part(file, size)?;
            if body.is_empty() {
                break;
            }
            let number = number.to_string();
            let query = [("partNumber", number.as_str()), ("uploadId", id)];
            let (url, answer) = self.send(&ask(Method::PUT, object, &query, body)).await?;
            let tag = answer.headers().get("etag").and_then(|tag| tag.to_str().ok());
            let tag = tag.filter(|tag| !tag.contains(['<', '&']));
            let tag = tag.ok_or(S3Error::Answer { url, what: "a part has no ETag" })?;
            list += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
        }
        list += "</CompleteMultipartUpload>";
        let query = [("uploadId", id)];
        let (url, answer) = self.send(&ask(Method::POST, object, &query, list.into())).await?;
        let answer = text(&url, answer).await?;
        match xml::error(&answer) {
            Some((code, message)) => {
                Err(S3Error::Refused { method: Method::POST, url, status: 200, code, message })
            }
            None if xml::text(&answer, "CompleteMultipartUploadResult", "ETag").is_some() => Ok(()),
            None => Err(S3Error::Answer { url, what: "it does not say that the upload is complete" }),
        }
    }
}

fn ask<'a>(method: Method, object: &'a S3Location, query: &'a [(&'a str, &'a str)], body: Bytes) -> Ask<'a> {
    Ask { method, bucket: &object.bucket, key: &object.path, query, body }
}
