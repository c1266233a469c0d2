//! A backup of a store, as a stream of bytes. Neither the memory nor the writers of the server are held up by it.

use crate::files::FilesError;
use crate::format::{Cluster, Encoder, File, FormatError, Header};
use bytes::Bytes;
use coracle_store::{Engine, Export, Store, StoreError};
use futures::{Stream, StreamExt, stream};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Chunks that are made ahead of their reader.
const AHEAD: usize = 2;

/// Why a backup cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// The store does not give its keys.
    #[error("the store cannot be exported")]
    Store(#[from] StoreError),
    /// A part does not fit.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A key of the cluster cannot be read.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The thread that compresses has panicked.
    #[error(transparent)]
    Thread(#[from] tokio::task::JoinError),
}

/// What a backup is made of.
pub struct Source {
    /// The store. Its values are taken as they are stored.
    pub store: Arc<dyn Store>,
    /// The files of the cluster's identity.
    pub files: Vec<File>,
    /// The cluster.
    pub cluster: Cluster,
}

/// The bytes of a backup, in order. An error ends them.
pub type Pieces = stream::BoxStream<'static, Result<Bytes, MakeError>>;

/// Begins a backup: the revision is that of now.
pub async fn begin(source: Source) -> Result<(Header, Pieces), MakeError> {
    let engine = source.store.status().await?.engine;
    let export = source.store.export("/").await?;
    let header = Header {
        made_by: format!("coracle {}", env!("CARGO_PKG_VERSION")),
        time: jiff::Timestamp::now(),
        revision: export.revision,
        datastore: match engine {
            Engine::Embedded => "embedded",
            Engine::Etcd => "etcd",
        }
        .to_owned(),
        cluster: source.cluster,
    };
    let (mut encoder, first) = Encoder::begin(&header)?;
    let files = encoder.files(&source.files)?;
    let (sender, receiver) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        if let Err(error) = encode(encoder, export, &sender).await {
            let _ = sender.send(Err(error)).await;
        }
    });
    let first = stream::iter([Ok(first), Ok(files)]);
    Ok((header, first.chain(received(receiver)).boxed()))
}

fn received<T: Send + 'static>(receiver: mpsc::Receiver<T>) -> impl Stream<Item = T> + Send {
    stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) })
}

/// Encodes all keys. Ends early when nobody reads any more.
async fn encode(
    mut encoder: Encoder,
    mut export: Export,
    sender: &mpsc::Sender<Result<Bytes, MakeError>>,
) -> Result<(), MakeError> {
    while let Some(one) = export.keys.next().await {
        let one = one?;
        if encoder.is_full(&one) {
            let closed = tokio::task::spawn_blocking(move || {
                let chunk = encoder.close_chunk();
                (encoder, chunk)
            });
            let chunk;
            (encoder, chunk) = closed.await?;
            if sender.send(Ok(chunk?)).await.is_err() {
                return Ok(());
            }
        }
        encoder.key(&one)?;
    }
    let (end, _) = tokio::task::spawn_blocking(move || encoder.finish()).await??;
    let _ = sender.send(Ok(end)).await;
    Ok(())
}
