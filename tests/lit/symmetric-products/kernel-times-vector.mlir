// RUN: %exla-opt %s --passes=symmetric-products --size-threshold=200KB --split-size=100KB | filecheck %s
// RUN: %exla-opt %s --passes=symmetric-products --size-threshold=200KB --split-size=100KB --remarks=all -o %t 2>&1 | filecheck %s --check-prefix=REMARK
// RUN: %exla-opt %s --passes=symmetric-products --size-threshold=2MB --split-size=100KB | filecheck %s --check-prefix=LEFT
// RUN: %exla-opt %s --passes=symmetric-products --size-threshold=200KB --split-size=100KB --no-reassociate | filecheck %s --check-prefix=LEFT

// exp(-|x_i - x_j|^2 / 2) v, where the squares are multiplied out: each of 9 blocks of 67 points meets itself and the
// four that follow it. 603 is more than 601: the last two points stand twice, with half of their weights.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK: %[[LAST:.*]] = stablehlo.slice %arg1 [599:601] :
// CHECK: %[[HALF:.*]] = stablehlo.multiply %[[LAST]],
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(
// CHECK: %[[TILE:.*]] = stablehlo.exponential {{.*}} : tensor<67x335xf32>
// CHECK: %[[BELOW:.*]] = stablehlo.dot_general %{{.*}}, %[[TILE]], contracting_dims = [0] x [0]{{.*}} -> tensor<335xf32>
// CHECK: stablehlo.select %{{.*}}, %{{.*}}, %[[BELOW]] :
// CHECK: stablehlo.dot_general %[[TILE]], %{{.*}}, contracting_dims = [1] x [0]{{.*}} -> tensor<67xf32>
// CHECK-COUNT-2: stablehlo.dynamic_update_slice
// CHECK-NOT: tensor<601x601xf32>

// REMARK: 601x601xf32 (1.44MB) computed once for both halves, in 9 tiles: it is symmetric [symmetric-products, EX014]

// LEFT-NOT: stablehlo.while

func.func @main(%x: tensor<601x14xf32>, %v: tensor<601xf32>) -> tensor<601xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %half = stablehlo.constant dense<-0.5> : tensor<601x601xf32>
  %two = stablehlo.constant dense<2.0> : tensor<601x14xf32>
  %0 = stablehlo.multiply %x, %x : tensor<601x14xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<601x14xf32>, tensor<f32>) -> tensor<601xf32>
  %rows = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<601xf32>) -> tensor<601x601xf32>
  %columns = stablehlo.broadcast_in_dim %1, dims = [1] : (tensor<601xf32>) -> tensor<601x601xf32>
  %2 = stablehlo.add %rows, %columns : tensor<601x601xf32>
  %3 = stablehlo.multiply %two, %x : tensor<601x14xf32>
  %4 = stablehlo.dot_general %3, %x, contracting_dims = [1] x [1] : (tensor<601x14xf32>, tensor<601x14xf32>) -> tensor<601x601xf32>
  %5 = stablehlo.subtract %2, %4 : tensor<601x601xf32>
  %6 = stablehlo.multiply %half, %5 : tensor<601x601xf32>
  %k = stablehlo.exponential %6 : tensor<601x601xf32>
  %y = stablehlo.dot_general %k, %v, contracting_dims = [1] x [0] : (tensor<601x601xf32>, tensor<601xf32>) -> tensor<601xf32>
  return %y : tensor<601xf32>
}
