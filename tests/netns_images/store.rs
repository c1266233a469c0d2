use std::fs;

use coracle_engine::image::{Error, ImageStore, gc::Policy};
use coracle_tests::lab::{Lab, in_lab};

use crate::build::{Image, Layer};

fn add(lab: &Lab, store: &ImageStore, name: &str, tars: &[Vec<u8>]) -> String {
    let archive = lab.path("image.tar");
    Image::of_tars(tars).save(&archive, name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(store.import(&archive, None)).unwrap()[0].id.clone()
}

fn layers(lab: &Lab) -> usize {
    fs::read_dir(lab.path("store/chains")).unwrap().count()
}

#[test]
fn names_move_layers_are_shared_and_images_in_use_stay() {
    in_lab(|lab| {
        let store = ImageStore::open(&lab.path("store")).unwrap();
        let base = Layer::default().file("base", "x").bytes();
        let one = Layer::default().file("one", "x").bytes();
        let first = add(lab, &store, "docker.io/library/app:1", &[base.clone(), one]);
        let second = add(lab, &store, "docker.io/library/app:1", std::slice::from_ref(&base));
        assert_eq!(layers(lab), 2, "the base is unpacked once");
        assert_eq!(store.get("app:1").unwrap().id, second, "the name moved");
        assert!(store.get(&first).unwrap().repo_tags.is_empty());
        assert_eq!(store.get(&first[7..20]).unwrap().id, first, "by the beginning of its id");
        assert!(matches!(store.get("nothing"), Err(Error::NotFound { .. })));

        store.hold(&first, "container").unwrap();
        assert!(
            matches!(store.remove(&first), Err(Error::InUse { holders, .. }) if holders == ["container"])
        );
        let all = Policy { high_percent: 0, low_percent: 0, min_age: 0, max_age: 0 };
        let removed = store.collect_garbage(all).unwrap().removed;
        assert_eq!(removed, std::slice::from_ref(&second), "only what nobody uses");
        assert_eq!(layers(lab), 2, "the base is still needed");

        // Another process, or the next start, sees the same.
        let again = ImageStore::open(&lab.path("store")).unwrap();
        again.retain_holds(|container| container == "container").unwrap();
        assert!(matches!(again.remove(&first), Err(Error::InUse { .. })));
        again.release(&first, "container").unwrap();
        again.release(&first, "container").unwrap();
        again.remove(&first).unwrap();
        again.remove(&first).unwrap();
        assert_eq!((layers(lab), again.list().unwrap().len()), (0, 0));
        assert!(matches!(again.hold(&first, "late"), Err(Error::NotFound { .. })));
    });
}

#[test]
fn a_crash_between_layer_and_record_is_swept() {
    in_lab(|lab| {
        let store = ImageStore::open(&lab.path("store")).unwrap();
        let id = add(lab, &store, "app:1", &[Layer::default().file("a", "x").bytes()]);
        fs::remove_file(lab.path(&format!("store/images/{}.json", &id[7..]))).unwrap();
        fs::create_dir_all(lab.path("store/ingest/layer-dead/fs")).unwrap();
        let again = ImageStore::open(&lab.path("store")).unwrap();
        assert_eq!((layers(lab), again.list().unwrap().len()), (0, 0));
        assert_eq!(fs::read_dir(again.ingest_dir()).unwrap().count(), 0);
    });
}
